"""Masks found from pixels against the transparency that a renderer gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from stockpot.datasets.composed.matte import opacity
from stockpot.datasets.composed.object_on_context import LINE_ART, OBJECTS
from stockpot.datasets.icons.build import _Sources
from stockpot.datasets.icons.loader import icons
from stockpot.datasets.icons.render import _centred, _with_resvg, svg_text
from stockpot.datasets.icons.styles import STYLES

SIZE = 64
HEAD = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64" width="64" height="64">'
DRAWINGS = {
    "a white face in an outline": '<circle cx="32" cy="30" r="20" fill="#fff" stroke="#333" '
    'stroke-width="3"/><circle cx="25" cy="27" r="3"/><circle cx="39" cy="27" r="3"/>',
    "a pale cup": '<path d="M14 12h30v34a8 8 0 0 1-8 8H22a8 8 0 0 1-8-8z" fill="#e8e3da"/>'
    '<path d="M44 20h6a6 6 0 0 1 0 18h-6" fill="none" stroke="#c9b8a0" stroke-width="4"/>',
    "a shaded ball": '<defs><radialGradient id="g"><stop stop-color="#ffe"/><stop offset="1" '
    'stop-color="#c40"/></radialGradient></defs><circle cx="32" cy="32" r="25" fill="url(#g)"/>',
    "a thin flower": '<path d="M32 60C30 44 34 40 32 24" stroke="#284" stroke-width="3" '
    'fill="none"/><circle cx="32" cy="17" r="10" fill="#d36"/>',
}


def truth(svg: str) -> np.ndarray:
    """The drawing's own opacity, placed as the picture is."""
    drawing = _with_resvg(svg, SIZE)
    canvas = Image.new("RGBA", (SIZE, SIZE), (255, 255, 255, 0))
    canvas.paste(drawing, ((SIZE - drawing.width) // 2, (SIZE - drawing.height) // 2))
    return np.asarray(canvas)[:, :, 3] / 255


def iou(found: np.ndarray, true: np.ndarray) -> float:
    return float((found & true).sum() / (found | true).sum())


@pytest.mark.parametrize("name", DRAWINGS)
def test_found_masks_are_the_renderer_s(name: str) -> None:
    pytest.importorskip("resvg_py")
    svg = f"{HEAD}{DRAWINGS[name]}</svg>"
    picture = np.asarray(_centred(_with_resvg(svg, SIZE), SIZE))
    found = opacity(torch.from_numpy(picture.copy()).permute(2, 0, 1)[None])[0].numpy()
    true = truth(svg)
    # What a handle encloses cannot be reached from the page's edge: it counts as the cup.
    filled = ndimage.binary_fill_holes(true > 0.5)
    assert iou(found > 0.5, filled) > 0.97
    assert np.abs(found - np.maximum(true, filled & (true == 0)))[true != 1].mean() < 0.02


@pytest.mark.network
def test_masks_of_the_embedded_icons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fetch the vector drawings again and compare every object of the default classes."""
    pytest.importorskip("resvg_py")
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path))
    styles = [each for each in STYLES if not each.share_alike and each.name not in LINE_ART]
    sources = _Sources(lambda what, done, total: None, styles)
    data = icons(split="all", classes=OBJECTS)
    pixels = torch.cat([batch.images for batch in data.batches()])
    found = (opacity(pixels) > 0.5).numpy()
    scores: dict[str, list[float]] = {name: [] for name in OBJECTS}
    for row, (style, codepoint) in enumerate(
        zip(data.columns["style"], data.columns["codepoint"], strict=True)
    ):
        if style not in LINE_ART:
            svg = svg_text(sources.icons[style], sources.names[style][codepoint])
            true = truth(svg) > 0.5
            scores[data.classes[data.labels[row]]].append(iou(found[row], true))
    with capsys.disabled():
        for name, values in scores.items():
            print(f"{name:20} {len(values):5} {np.mean(values):.4f}")
        print(f"{'all':20} {sum(map(len, scores.values())):5} ", end="")
        print(f"{np.mean([value for values in scores.values() for value in values]):.4f}")
    assert min(np.mean(values) for values in scores.values()) > 0.96
