"""Which icon of a style shows which codepoint.

Some styles carry a table from codepoint to icon name. For the others the whole name is looked up
among the listed aliases, the names of a sibling style, and the CLDR names: equal names only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def bare(codepoints: str) -> str:
    """A codepoint sequence in lower-case hex without the variation selector."""
    return "-".join(part for part in codepoints.lower().split("-") if part != "fe0f")


def key(name: str) -> str:
    """A name as it is compared: lower case, letters and digits only."""
    return re.sub("[^a-z0-9]", "", name.lower())


def by_table(chars: Mapping[str, str], icons: Iterable[str]) -> dict[str, str]:
    """Codepoint -> icon name from a style's own table."""
    known = set(icons)
    found: dict[str, str] = {}
    for codepoints, name in chars.items():
        if name in known:
            found.setdefault(bare(codepoints), name)
    return found


def by_name(
    icons: Iterable[str],
    aliases: Mapping[str, str],
    sibling: Mapping[str, str],
    cldr: Mapping[str, str],
) -> dict[str, str]:
    """Codepoint -> icon name by equal names; an earlier argument wins over a later one.

    Args:
        icons: the icon names of the style.
        aliases: icon name -> codepoint, listed by hand.
        sibling: icon name -> codepoint of a style that shares its names.
        cldr: CLDR name -> codepoint.
    """
    lookups = [{key(n): c for n, c in table.items()} for table in (aliases, sibling, cldr)]
    found: dict[str, str] = {}
    ranks: dict[str, tuple[int, bool]] = {}
    for name in icons:
        # A set with two drawings of one thing numbers them; the first one is taken.
        numbered = name.endswith("-1")
        for rank, lookup in enumerate(lookups):
            codepoint = lookup.get(key(name.removesuffix("-1") if numbered else name))
            if codepoint is not None:
                if codepoint not in found or (rank, numbered) < ranks[codepoint]:
                    found[codepoint], ranks[codepoint] = name, (rank, numbered)
                break
    return found
