"""Where the patches of a vision transformer are, and which tokens its decision reads."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

from torch import Tensor, nn

from stockpot.errors import UserError

Readout = Literal["class_token", "two_tokens", "mean", "pooling"]
"""The class token; DeiT's class and distillation tokens; the mean patch; attention pooling."""

FAMILIES = ("vit", "deit", "clip", "siglip")


class Tower(NamedTuple):
    """A vision transformer inside a classifier."""

    module: nn.Module
    """The part whose `embeddings` turn pixels into tokens."""
    readout: Readout
    patch: tuple[int, int]

    def grid(self, pixels: Tensor) -> tuple[int, int]:
        """Rows and columns of patches of these (fitted) pixels."""
        return pixels.shape[-2] // self.patch[0], pixels.shape[-1] // self.patch[1]

    @property
    def embeddings(self) -> nn.Module:
        """The module that makes the tokens."""
        return cast(nn.Module, self.module.embeddings)


def find_tower(network: nn.Module) -> Tower | None:
    """The vision transformer of a network; none where there is none of a known family."""
    owner = next((m for m in network.modules() if _family(m)), None)
    if owner is None:
        return None
    for module in network.modules():
        patches = _patches(module)
        if patches is not None:
            size = (int(patches.kernel_size[0]), int(patches.kernel_size[1]))
            return Tower(module, _readout(network, module), size)
    return None


def need_tower(network: nn.Module, what: str) -> Tower:
    """The same, or a complaint that says what needs it."""
    tower = find_tower(network)
    if tower is None:
        raise UserError(
            f"{what} needs a vision transformer ({', '.join(FAMILIES)}) of Hugging Face.",
            hint="For convolutional networks use Grad-CAM and the fills single or multi.",
        )
    return tower


def _family(module: nn.Module) -> bool:
    kind = str(getattr(getattr(module, "config", None), "model_type", ""))
    return kind.removesuffix("_vision_model") in FAMILIES


def _patches(module: nn.Module) -> nn.Conv2d | None:
    """The convolution that cuts patches, if this module owns the embeddings of a tower."""
    embeddings = getattr(module, "embeddings", None)
    if not isinstance(embeddings, nn.Module) or not _family(module):
        return None
    found = [m for m in embeddings.modules() if isinstance(m, nn.Conv2d)]
    return found[0] if found and found[0].kernel_size == found[0].stride else None


def _readout(network: nn.Module, tower: nn.Module) -> Readout:
    names = {type(module).__name__ for module in network.modules()}
    if "DeiTForImageClassificationWithTeacher" in names:
        return "two_tokens"
    if names & {"CLIPForImageClassification", "SiglipForImageClassification"}:
        return "mean"
    return "pooling" if isinstance(getattr(tower, "head", None), nn.Module) else "class_token"
