"""Hugging Face image classifiers: folders and hub ids of ViT, DeiT, Swin, BEiT, DINOv2, ResNet,
ConvNeXt v1/v2, CLIP, SigLIP and every other architecture of `AutoModelForImageClassification`.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor, nn

from stockpot.checkpoints.folder import copy_companions
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.resolve import Resolved
from stockpot.errors import BadCheckpointError, UserError
from stockpot.models.architectures.named import settings_of, teach_transformers
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.config import read_config
from stockpot.models.fingerprint import fingerprint_folder, fingerprint_tensors
from stockpot.models.hub_processor import folder_processor
from stockpot.models.plain.load import plain_network
from stockpot.models.preprocess import Preprocess

_KNOWN = (
    "model.safetensors", "model.safetensors.index.json",
    "pytorch_model.bin", "pytorch_model.bin.index.json",
)  # fmt: skip
"""The files of weights that transformers looks for."""
_MAX_SHARD = 5_000_000_000
_LONGEST_HEADER = 100_000_000


class HuggingFaceNetwork(nn.Module):
    """A transformers image classifier as a plain module from normalised pixels to logits."""

    def __init__(self, model: nn.Module, preprocess: Preprocess) -> None:
        super().__init__()
        self.model = model
        self.preprocess = preprocess

    def forward(self, pixels: Tensor) -> Tensor:
        answers = self.model(pixel_values=self._taken(pixels))
        if not hasattr(answers, "logits"):
            raise BadCheckpointError(
                f"{type(self.model).__name__} answers with {type(answers).__name__}, "
                "which has no logits.",
                hint="Give a function that builds a module from pixels to logits, "
                "`module.py:factory`.",
            )
        logits: Tensor = answers.logits
        return logits

    def features(self, pixels: Tensor) -> Tensor:
        """The input of the last linear layer."""
        head = last_linear(self.model)
        seen: list[Tensor] = []
        handle = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            self.model(pixel_values=self._taken(pixels))
        finally:
            handle.remove()
        return seen[0].flatten(1)

    def _taken(self, pixels: Tensor) -> Tensor:
        """In the type of the weights, which some networks of transformers do not see to."""
        first = next((one for one in self.model.parameters() if one.is_floating_point()), None)
        return pixels if first is None or first.dtype == pixels.dtype else pixels.to(first.dtype)

    def save(self, folder: Path) -> None:
        """Write `config.json`, safetensors and the preprocessing."""
        folder.mkdir(parents=True, exist_ok=True)
        if not hasattr(self.model, "save_pretrained"):
            raise UserError("a model that was loaded to be measured is not saved; load it again.")
        with quietly():
            self.model.save_pretrained(folder)  # type: ignore[operator]
        text = json.dumps(self.preprocess.to_hub(), indent=2)
        (folder / "preprocessor_config.json").write_text(text + "\n", encoding="utf-8")


def last_linear(model: nn.Module) -> nn.Linear:
    """The classification head: the linear layer that was defined last."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise UserError(f"{type(model).__name__} has no linear head.")
    return layers[-1]


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers' progress bars and advice off the user's terminal."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _readable(folder: Path) -> Iterator[Path]:
    """The folder, or for a while a copy where transformers cannot read its weights as they lie:
    shards without an index, and FP8 with scales, which it would read without them.
    """
    files = list(folder.glob("*.safetensors"))
    if any((folder / name).is_file() for name in _KNOWN) and not any(map(_has_float8, files)):
        yield folder
        return
    try:
        source = open_checkpoint(folder)
    except BadCheckpointError:
        yield folder  # transformers has its own words for what is wrong
        return
    from stockpot.checkpoints.write import ShardWriter

    with TemporaryDirectory() as name:
        copy_companions(folder, Path(name))
        infos = source.tensors()
        with ShardWriter(Path(name), infos, max_shard=_MAX_SHARD) as writer:
            for tensor in infos:
                writer.write(tensor, source.read(tensor))
        yield Path(name)


def _has_float8(path: Path) -> bool:
    with path.open("rb") as file:
        return b'"F8_' in file.read(min(int.from_bytes(file.read(8), "little"), _LONGEST_HEADER))


def load_weights(auto_class: Any, folder: Path, **options: Any) -> Any:
    """`from_pretrained` that refuses to leave a weight at its random start."""
    try:
        with quietly(), _readable(folder) as place:
            model, report = auto_class.from_pretrained(
                place, output_loading_info=True, ignore_mismatched_sizes=True, **options
            )
    except Exception as problem:
        reason = str(problem).strip().splitlines()[0]
        raise BadCheckpointError(f"{folder} could not be loaded: {reason}") from problem
    faults = [
        f"{name} is {tuple(found)} in the file, {tuple(expected)} in the configuration"
        for name, found, expected in sorted(report["mismatched_keys"])
    ]
    mismatched = {name for name, *_ in report["mismatched_keys"]}
    missing = sorted(set(report["missing_keys"]) - mismatched)
    faults += [f"{name} is missing" for name in missing]
    if faults:
        shown = "; ".join(faults[:3]) + (f"; and {len(faults) - 3} more" if faults[3:] else "")
        raise BadCheckpointError(
            f"{folder} does not fit its config.json: {shown}.",
            hint="A classifier needs every weight, its head included.",
        )
    return model


def load_huggingface(place: Resolved, *, dtype: str = "float32", name: str = "") -> Classifier:
    """Load an image classifier with its own head."""
    from transformers import AutoModelForImageClassification

    teach_transformers()
    folder = place.local()
    config = read_config(folder)
    _stated_names(folder, config)  # transformers' words for what is wrong there do not name it
    model = load_weights(AutoModelForImageClassification, folder, dtype=dtype)
    return _classifier(model, folder, config, type(model).__name__, name or place.text)


def load_to_ask(place: Resolved, *, dtype: str = "float32", name: str = "") -> Classifier:
    """The same classifier for who leaves its weights alone, without transformers where it goes."""
    found = load_plain(place, name=name) if dtype == "float32" else None
    return found or load_huggingface(place, dtype=dtype, name=name)


def load_plain(
    place: Resolved, *, name: str = "", device: torch.device | None = None
) -> Classifier | None:
    """The same without transformers; none where it does not go.

    Args:
        place: the folder.
        name: how the model is called, if not as the folder.
        device: a GPU that its weights go to as they are read.
    """
    folder = place.local()
    config = read_config(folder)
    model = plain_network(folder, config, device)
    if model is None:
        return None
    return _classifier(model, folder, config, config["architectures"][0], name or place.text)


def _classifier(
    model: nn.Module, folder: Path, config: dict[str, Any], architecture: str, source: str
) -> Classifier:
    preprocess = Preprocess.of(folder_processor(folder, config))
    names = class_names(_stated_names(folder, config) or _usual_names(model))
    network = HuggingFaceNetwork(model, preprocess)
    origin = Origin(source, architecture, fingerprint_folder(folder))
    return Classifier(network, preprocess, names, origin)


def new_huggingface(
    model_type: str, *, classes: tuple[str, ...], preprocess: Preprocess, seed: int, **config: Any
) -> Classifier:
    """A freshly initialised classifier of a transformers architecture."""
    from transformers import AutoConfig, AutoModelForImageClassification

    teach_transformers()
    model_type, usual = settings_of(model_type, preprocess.size[0])
    config = {**usual, **config}
    labels = dict(enumerate(classes))
    reverse = {label: index for index, label in labels.items()}
    try:
        settings = AutoConfig.for_model(model_type, id2label=labels, label2id=reverse, **config)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = AutoModelForImageClassification.from_config(settings)
    except (ValueError, TypeError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(f"no new {model_type!r} model could be made: {reason}") from problem
    origin = Origin(
        f"new {model_type}", type(model).__name__, fingerprint_tensors(model.state_dict().items())
    )
    return Classifier(HuggingFaceNetwork(model, preprocess), preprocess, classes, origin)


def _stated_names(folder: Path, config: dict[str, Any]) -> dict[int, str]:
    """The names of the classes by number, as `config.json` states them, if it does."""
    said = config.get("id2label") or {}
    try:
        return {int(index): str(label) for index, label in said.items()}
    except (AttributeError, ValueError):
        raise BadCheckpointError(
            f"{folder / 'config.json'}: id2label should give each class a name by its number, "
            f"got {reprlib.repr(said)}."
        ) from None


def _usual_names(model: nn.Module) -> dict[int, str]:
    """The names that transformers gives to classes without any, or numbers where it gives none."""
    settings = cast(Any, model.config)
    return settings.id2label or {index: str(index) for index in range(settings.num_labels)}


def class_names(id2label: dict[int, str]) -> tuple[str, ...]:
    """Class names in order; transformers' placeholder names become plain numbers."""
    ordered = [id2label[index] for index in sorted(id2label)]
    if all(label == f"LABEL_{index}" for index, label in enumerate(ordered)):
        return tuple(str(index) for index in range(len(ordered)))
    return tuple(ordered)
