"""CNS-Bench: nuisances that grow continuously, from none to much."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.natural.classes import imagenet_names
from stockpot.datasets.natural.later.attributed import load_attributed
from stockpot.datasets.natural.layout import Layout, NaturalSet
from stockpot.datasets.stream.file_check import OnBroken

_FOLDER = re.compile(r"(\d{1,3})_.+")
_FILE = re.compile(r"seed_(\d+)_scale_(-?\d+)")


def _number(folder: str) -> int | None:
    match = _FOLDER.fullmatch(folder)
    return int(match.group(1)) if match else None


CNS_BENCH = NaturalSet(
    "cns_bench",
    Layout(("cns_bench", "CNS-Bench", "cns-bench")),
    imagenet_names(),
    _number,
    tuple(range(1000)),
    "CC0-1.0",
)


@datasets.register("cns_bench", paper="arXiv:2507.17651")
def cns_bench(*, path: str, shift: str | None = None, on_broken: OnBroken = "stop") -> Dataset:
    """CNS-Bench: pictures of ImageNet classes under nuisances of growing scale.

    Columns: `shift` (such as `painting_style`), `scale` (0 is none) and `original`, which joins the
    pictures of one seed and class, so that `surface` with by=scale gives the curve.

    Args:
        path: the folder of shifts, each with class folders such as `022_bald eagle`, or the folder
            above.
        shift: one of them; without it all.
        on_broken: what to do with files that cannot be decoded: stop and name them, or skip them.
    """

    def says(place: PurePosixPath) -> Mapping[str, str] | None:
        match = _FILE.fullmatch(place.stem)
        if match is None or len(place.parts) != 3 or shift not in (None, place.parts[0]):
            return None
        seed, scale = match.groups()
        original = f"{place.parts[0]}/{place.parts[1]}/{seed}"
        return {"shift": place.parts[0], "scale": f"{int(scale) / 1000:g}", "original": original}

    shape = f"{shift or 'painting_style'}/022_bald eagle/seed_0034_scale_1000.jpg"
    return load_attributed(CNS_BENCH, path, says, on_broken, shape=shape, split=shift or "all")
