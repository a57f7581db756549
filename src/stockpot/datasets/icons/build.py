"""Building the icons: fetch the styles, render every listed concept, write one parquet file."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from stockpot.datasets.fetch.cache import cache_dir, written_whole
from stockpot.datasets.fetch.npm import read_json
from stockpot.datasets.fetch.source import Progress, silent
from stockpot.datasets.icons.concepts import check_names, class_table, read_table
from stockpot.datasets.icons.naming import bare, by_name, by_table
from stockpot.datasets.icons.render import is_blank, render, svg_text
from stockpot.datasets.icons.split import SEED, split_of
from stockpot.datasets.icons.styles import CLDR, FAMILIES, STYLES, Style
from stockpot.errors import UnknownNameError

COLUMNS = ("class", "concept", "codepoint", "style", "family", "licence", "split", "image")


class Summary(NamedTuple):
    """What a build made and what it left out."""

    path: Path
    images: int
    classes: int
    styles: int
    blank: list[str]
    repeated: list[str]

    def __str__(self) -> str:
        left_out = f"{len(self.blank)} blank and {len(self.repeated)} repeated drawings left out"
        return (
            f"{self.path}: {self.images:,} pictures, {self.classes} classes, {self.styles} styles "
            f"({left_out})"
        )


def built_path() -> Path:
    """Where a build goes when no other place is named."""
    return cache_dir() / "datasets" / "icons.parquet"


def build(
    out: Path | None = None,
    *,
    size: int = 64,
    families: Sequence[str] | None = None,
    include_share_alike: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Render the icons into one parquet file.

    Args:
        out: the parquet file to write; in the cache when not given.
        size: height and width in pixels.
        families: design families to take; all when not given.
        include_share_alike: also take the CC-BY-SA styles, which the package does not embed.
        progress: told how far the work is.
    """
    out = out or built_path()
    styles = _chosen(families, include_share_alike)
    tell = progress or silent
    sources = _Sources(tell, styles)
    check_names(sources.cldr)
    rejected = {style: set(codes or ()) for style, codes in read_table("rejected").items()}
    rows: list[dict[str, Any]] = []
    blank, repeated = [], []
    for number, style in enumerate(styles):
        tell("rendering", number, len(styles))
        seen: dict[bytes, str] = {}
        for label, codepoint, concept in _listed():
            name = sources.names[style.name].get(codepoint)
            if name is None or codepoint in rejected.get(style.name, ()):
                continue
            picture = render(svg_text(sources.icons[style.name], name), size)
            what = f"{style.name}:{name}"
            if is_blank(picture):
                blank.append(what)
                continue
            pixels = picture.tobytes()
            if pixels in seen:  # one drawing under two names would leak between splits
                repeated.append(f"{what} = {seen[pixels]}")
                continue
            seen[pixels] = name
            values = (label, concept, codepoint, style.name, style.family, style.licence)
            split = split_of(style.name, codepoint)
            rows.append(dict(zip(COLUMNS, (*values, split, _encoded(picture)), strict=True)))
    tell("rendering", len(styles), len(styles))
    order = {label: number for number, label in enumerate(class_table())}
    rows.sort(key=lambda row: order[row["class"]])  # stable: table order inside a class and style
    _write(rows, out, size)
    return Summary(out, len(rows), len(order), len(styles), blank, repeated)


def _chosen(families: Sequence[str] | None, include_share_alike: bool) -> list[Style]:
    for family in families or ():
        if family not in FAMILIES:
            raise UnknownNameError("icon family", family, FAMILIES)
    return [
        style
        for style in STYLES
        if (families is None or style.family in families)
        and (include_share_alike or not style.share_alike)
    ]


def _listed() -> Iterator[tuple[str, str, str]]:
    for label, groups in class_table().items():
        for concept in (concept for group in groups for concept in group):
            yield label, concept.codepoint, concept.name


class _Sources:
    """The fetched drawings and, for each style, codepoint -> icon name."""

    def __init__(self, tell: Progress, styles: Sequence[Style]) -> None:
        folder = cache_dir() / "downloads"
        by_style = {style.name: style for style in STYLES}
        needed = dict.fromkeys(
            [style.name for style in styles]
            + [style.names_like for style in styles if style.names_like]
        )
        self.icons: dict[str, Mapping[str, Any]] = {}
        tables: dict[str, dict[str, str]] = {}
        for number, name in enumerate(needed):
            tell("fetching", number, len(needed) + 1)
            archive = by_style[name].package.fetch(folder)
            self.icons[name] = read_json(archive, "icons.json")
            tables[name] = by_table(read_json(archive, "chars.json"), self.icons[name]["icons"])
        emoji = read_json(CLDR.fetch(folder), "data-by-emoji.json")
        tell("fetching", len(needed) + 1, len(needed) + 1)
        self.cldr: dict[str, str] = {
            bare("-".join(f"{ord(sign):x}" for sign in signs)): facts["name"]
            for signs, facts in emoji.items()
        }
        cldr_names = {name: codepoint for codepoint, name in self.cldr.items()}
        aliases = read_table("aliases")
        self.names: dict[str, dict[str, str]] = {}
        for style in styles:
            if tables[style.name]:
                self.names[style.name] = tables[style.name]
                continue
            sibling = tables.get(style.names_like, {})
            self.names[style.name] = by_name(
                self.icons[style.name]["icons"],
                {**aliases["every style"], **aliases.get(style.name, {})},
                {name: codepoint for codepoint, name in sibling.items()},
                cldr_names,
            )


def _encoded(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", lossless=True, quality=75, method=4)
    return buffer.getvalue()


def _write(rows: list[dict[str, Any]], out: Path, size: int) -> None:
    fields = [pa.field(name, pa.binary() if name == "image" else pa.string()) for name in COLUMNS]
    facts = {"size": str(size), "split_seed": str(SEED), "image": "lossless WebP, RGB on white"}
    schema = pa.schema(fields, metadata=facts)
    table = pa.Table.from_pylist(rows, schema=schema)
    with written_whole(out) as part:
        pq.write_table(
            table,
            part,
            compression={name: "none" if name == "image" else "zstd" for name in COLUMNS},
            use_dictionary=[name for name in COLUMNS if name != "image"],
        )
