"""The icon styles: where each one comes from, who designed it, and under which licence.

Styles of one design family share outlines (a flat and a monochrome cut of the same drawing), so a
hold-out must leave out a whole family, never one style.
"""

from __future__ import annotations

from typing import NamedTuple

from stockpot.datasets.fetch.npm import NpmPackage


class Style(NamedTuple):
    """One drawing style of one design family."""

    name: str
    family: str
    licence: str
    author: str
    package: NpmPackage
    names_like: str = ""
    """The style with a codepoint table whose icon names this one shares."""

    @property
    def share_alike(self) -> bool:
        """Whether derived works must carry the same licence, which keeps it out of the package."""
        return self.licence.startswith("CC-BY-SA")


def _iconify(name: str, version: str, sha256: str) -> NpmPackage:
    return NpmPackage(f"@iconify-json/{name}", version, sha256)


STYLES: tuple[Style, ...] = (
    Style(
        "noto",
        "noto",
        "Apache-2.0",
        "Google Inc",
        _iconify(
            "noto", "1.2.9", "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad"
        ),
    ),
    Style(
        "noto-v1",
        "noto-v1",  # redrawn throughout: no nearer to noto than twemoji is
        "Apache-2.0",
        "Google Inc",
        _iconify(
            "noto-v1", "1.2.5", "2bf62c26c2c2884aa99e90aec942cdaee17a5921f05690694f4978ad4b017c37"
        ),
        names_like="noto",
    ),
    Style(
        "twemoji",
        "twemoji",
        "CC-BY-4.0",
        "Twitter",
        _iconify(
            "twemoji", "1.2.5", "19046dff7d8707ce96212ec86468b36ac5f8e60409629dd13f809265c6d0ebb7"
        ),
    ),
    Style(
        "emojione",
        "emojione",
        "CC-BY-4.0",
        "Emoji One",
        _iconify(
            "emojione", "1.2.3", "26a14f44284407e8bcde91799388dca2bfd91dbcd55a97f425524a1c5b73610e"
        ),
    ),
    Style(
        "emojione-monotone",
        "emojione",
        "CC-BY-4.0",
        "Emoji One",
        _iconify(
            "emojione-monotone",
            "1.2.1",
            "40b90004bafb406b59266155ef9b7e1dd67bf2947fc8db8d07388776f4d0d04e",
        ),
    ),
    Style(
        "fluent",
        "fluent",
        "MIT",
        "Microsoft Corporation",
        _iconify(
            "fluent-emoji",
            "1.2.7",
            "8044210dbf11e016d4de85f15d01a243423bd832457e7e2491df1b751c0e272b",
        ),
        names_like="fluent-flat",
    ),
    Style(
        "fluent-flat",
        "fluent",
        "MIT",
        "Microsoft Corporation",
        _iconify(
            "fluent-emoji-flat",
            "1.2.6",
            "7d064769dee690815f823bc5bcc511d957198caf9f5edd8dd9c1aa48a6aeb175",
        ),
    ),
    Style(
        "fluent-high-contrast",
        "fluent",
        "MIT",
        "Microsoft Corporation",
        _iconify(
            "fluent-emoji-high-contrast",
            "1.2.6",
            "0b92d48c90d2200bd499e3cdd09a127ca6a8c8ddefd34c35eb5a1e4994012ae0",
        ),
    ),
    Style(
        "fxemoji",
        "fxemoji",
        "CC-BY-4.0",  # the drawings; the code of their repository is Apache-2.0
        "Mozilla",
        _iconify(
            "fxemoji", "1.2.2", "f3e72b3c59d05e1db03b7e308d55c0d05bd7ba3f625a90da1b79313c12858eef"
        ),
    ),
    Style(
        "streamline",
        "streamline",
        "CC-BY-4.0",
        "Streamline",
        _iconify(
            "streamline-emojis",
            "1.2.4",
            "5dac87c876b322500989828c5823143e0100d78881627a2e4081a4b897cbfdbc",
        ),
    ),
    Style(
        "openmoji",
        "openmoji",
        "CC-BY-SA-4.0",
        "OpenMoji",
        _iconify(
            "openmoji", "1.2.29", "03181e2c156cab35cf4a62f1f7886bd971d59212e75ac3f189d5a4cae3930fc5"
        ),
    ),
    Style(
        "emojione-v1",
        "emojione",
        "CC-BY-SA-4.0",
        "Emoji One",
        _iconify(
            "emojione-v1",
            "1.2.3",
            "6641d59d48a42823fdc2b84e7427e9f302944eb98d2c7d94d6e67c139e7b37b3",
        ),
    ),
)

CLDR = NpmPackage(
    "unicode-emoji-json",
    "0.9.0",
    "ae7efacb55533385bf8767d613dbd36c71226669759d95919a6e9059f5e4c401",
)
"""The names that Unicode's common locale data gives to each emoji."""

VENDORS = {"noto": "google", "noto-v1": "google"}
"""Families whose drawings are editions of one designer's work; others are their own."""

FAMILIES: tuple[str, ...] = tuple(dict.fromkeys(style.family for style in STYLES))
