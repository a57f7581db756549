"""The strengths of LAION-C's distortions, severities 1 to 5, as its authors' script has them.

Made for 224 px; lengths are shares of that side and follow the shorter side elsewhere.
"""

from __future__ import annotations

SIDE = 224

LAION_C: dict[str, tuple[tuple[float, ...], ...]] = {
    # number of shapes
    "geometric_shapes": ((150,), (300,), (600,), (800,), (1000,)),
    # level of the glitch: half the number of strips, and root of their largest shift
    "glitched": ((2,), (4,), (5,), (8,), (10,)),
    # least and largest change of light in a square
    "luminance_checkerboard": ((0, 50), (50, 100), (100, 125), (125, 150), (150, 255)),
    # side of a tile
    "mosaic": ((4,), (6,), (8,), (16,), (28,)),
    # number of stickers
    "stickers": ((100,), (200,), (400,), (600,), (1200,)),
    # number of lines, length of their pieces
    "vertical_lines": ((224, 1), (178, 2), (112, 4), (84, 6), (60, 8)),
}
