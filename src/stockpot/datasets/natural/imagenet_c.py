"""ImageNet-C as one set: every corruption at every severity, each picture with its original."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

import torch

from stockpot.datasets import datasets
from stockpot.datasets.dataset import ORIGINAL, Dataset
from stockpot.datasets.natural.classes import imagenet_names
from stockpot.datasets.natural.imagenet import by_wnid
from stockpot.datasets.natural.layout import Layout, NaturalSet, picture_names
from stockpot.datasets.natural.public import folder_dataset
from stockpot.datasets.stream.file_check import OnBroken
from stockpot.errors import BadDataError, BadParameterError
from stockpot.types import Count

FOLDERS = ("ImageNet-C", "imagenet-c", "imagenet_c")
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""Published beside the fifteen for validation; the benchmark's means leave them out."""
KNOWN = NaturalSet(
    "imagenet_c", Layout(FOLDERS), imagenet_names(), by_wnid, tuple(range(1000)), "Apache-2.0"
)


@datasets.register("imagenet_c", paper="arXiv:1903.12261")
def imagenet_c(
    *,
    path: str,
    corruptions: str | tuple[str, ...] = "benchmark",
    severities: int | tuple[int, ...] = (1, 2, 3, 4, 5),
    originals: Count | None = None,
    on_broken: OnBroken = "stop",
) -> Dataset:
    """All of ImageNet-C as one set: 15 corruptions x 5 severities of the validation images.

    Each picture knows its corruption, its severity and its original, so that shots are drawn evenly
    over all of them and intervals count an original once, however often it stands here. The
    measure `corruption` (folder=PATH) gives mCE instead.

    Args:
        path: the folder with gaussian_noise/1/n01440764/..., also inside noise/, blur/, weather/
            and digital/ as the archives unpack, or the folder above.
        corruptions: names with commas between, `benchmark` (those that are there but for the four
            extra ones) or `all`.
        severities: which of 1 to 5: a number, or several with commas between.
        originals: at most so many of the validation images, drawn with a seed, each in all of its
            copies; the others are not even opened.
        on_broken: as for `imagenet`.
    """
    folder = _located(Path(path).expanduser())
    levels = (severities,) if isinstance(severities, int) else severities
    there: dict[str, dict[str, str]] = {}
    for name in picture_names(folder):
        if (corruption := _corruption(name, levels)) is not None:
            there.setdefault(corruption, {})[name] = _original(name)
    wanted = _wanted(corruptions, sorted(there), folder)
    files = {name: known for each in wanted for name, known in there[each].items()}
    if originals is not None:
        kept = _some(sorted(set(files.values())), originals)
        files = {name: known for name, known in files.items() if known in kept}
    labels = {name: by_wnid(name.split("/")[-2]) or 0 for name in files}
    data = folder_dataset(KNOWN, folder, labels, "test", on_broken)
    names = data.columns["file"]
    columns = {
        "corruption": tuple(name.split("/")[-4] for name in names),
        "severity": tuple(name.split("/")[-3] for name in names),
        ORIGINAL: tuple(files[name] for name in names),
    }
    return replace(data, columns={**data.columns, **columns})


def _located(path: Path) -> Path:
    if not path.is_dir():
        raise BadDataError(f"imagenet_c: expected a folder, there is none at {path}.")
    return next((path / name for name in FOLDERS if (path / name).is_dir()), path)


def _corruption(name: str, severities: tuple[int, ...]) -> str | None:
    """The corruption of a file; none where it is no picture of the set at these severities."""
    parts = name.split("/")
    if len(parts) < 4 or by_wnid(parts[-2]) is None or not parts[-3].isdigit():
        return None
    return parts[-4] if int(parts[-3]) in severities else None


def _original(name: str) -> str:
    # With its class: names are only unique among the validation images as they are published.
    file = PurePosixPath(name)
    return f"{file.parent.name}/{file.stem}"


def _wanted(corruptions: str | tuple[str, ...], there: list[str], folder: Path) -> list[str]:
    if not there:
        raise BadDataError(
            f"imagenet_c: expected corruption/severity/wnid/picture in {folder}, found none.",
            hint="Such as gaussian_noise/1/n01440764/ILSVRC2012_val_00000293.JPEG.",
        )
    if corruptions == "benchmark":
        return [name for name in there if name not in EXTRA] or there
    if corruptions == "all":
        return there
    names = corruptions.split(",") if isinstance(corruptions, str) else list(corruptions)
    if missing := [name for name in names if name not in there]:
        raise BadParameterError(
            f"corruptions: {missing[0]!r} is not in {folder}; there are {', '.join(there)}."
        )
    return names


def _some(originals: list[str], count: int) -> set[str]:
    order = torch.randperm(len(originals), generator=torch.Generator().manual_seed(0))
    return {originals[row] for row in order[:count].tolist()}
