"""What is said of a picture: captions in our own words for each source of pictures."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

PHOTOGRAPHS = (
    "a photo of a {}.",
    "a blurry photo of a {}.",
    "a low resolution photo of a {}.",
    "a small picture of a {}.",
    "a photograph that shows a {}.",
    "a {} in a photo.",
    "one {}.",
    "{}",
)
SKETCHES = (
    "a sketch of a {}.",
    "a doodle of a {}.",
    "a line drawing of a {}.",
    "a {} drawn in a few seconds.",
    "a quick drawing: {}.",
    "{}",
)
DIGITS = (
    'a photo of the number "{}".',
    "a handwritten digit {}.",
    "the digit {}, white on black.",
    "someone wrote the number {}.",
    "a handwritten {}.",
)
CLOTHES = (
    "a photo of a {}.",
    "a greyscale picture of a {}.",
    "a piece of clothing: {}.",
    "a {} from a catalogue.",
    "a {} in shades of grey.",
    "{}",
)
ICONS = (
    "an icon of a {}.",
    "an emoji of a {}.",
    "a drawing of a {}.",
    "a small pictogram of a {}.",
    "a {} icon on white.",
    "{}",
)
ICON_KINDS = ("an icon of a {}.", "a drawing of a {}.")
"""How the class of an icon is said, besides the concept that it shows."""

SYNONYMS = {
    "airplane": ("plane", "aeroplane", "jet"),
    "automobile": ("car",),
    "ship": ("boat",),
    "truck": ("lorry",),
    "t-shirt": ("tee",),
    "trousers": ("pair of trousers",),
    "pullover": ("sweater",),
    "sneaker": ("running shoe",),
    "bag": ("handbag",),
}
KINDS: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {
        "pet": ("cat", "dog"),
        "hoofed animal": ("deer", "horse"),
        "small wild animal": ("bird", "frog"),
        "vehicle on the road": ("automobile", "truck"),
        "large craft": ("airplane", "ship"),
    },
    "mnist": {
        "digit with a loop": ("zero", "six", "eight", "nine"),
        "digit of straight strokes": ("one", "four", "seven"),
        "digit of open curves": ("two", "three", "five"),
    },
    "fashion_mnist": {
        "shoe": ("sandal", "sneaker", "ankle boot"),
        "garment for the upper body": ("t-shirt", "pullover", "coat", "shirt"),
        "long garment": ("trousers", "dress"),
        "thing to carry": ("bag",),
    },
}
"""Groups of classes that look alike, by what a caption says that does not name the class."""

NUMERALS = {
    word: (str(number),)
    for number, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    )
}


def captions(name: str, templates: tuple[str, ...]) -> tuple[str, ...]:
    """Every template around a name, and one around each of its other names."""
    others = SYNONYMS.get(name, ()) + NUMERALS.get(name, ())
    return tuple(template.format(name) for template in templates) + tuple(
        template.format(other) for other in others for template in templates[:2]
    )


def icon_captions(concept: str, codepoint: str, kind: str | None) -> tuple[str, ...]:
    """Captions of an icon: its Unicode name, its keywords, and the class it belongs to, if told."""
    words = keywords().get(codepoint, ())
    return (
        *(template.format(concept) for template in ICONS),
        *(f"an icon of a {concept}: {word}." for word in words[:2]),
        *(f"an emoji about {word}." for word in words[2:4]),
        *(template.format(kind) for template in ICON_KINDS if kind),
    )


@cache
def keywords() -> dict[str, tuple[str, ...]]:
    """Codepoint -> English keywords of Unicode CLDR (at most six)."""
    text = (files("stockpot.datasets.icons") / "keywords.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return {code: tuple(filter(None, words.split(", "))) for code, words in rows}
