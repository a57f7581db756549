"""Which soups are looked at, and which of them are chosen: arithmetic on answers, the same for
measuring and for judging. What is chosen is chosen on images that do not judge it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from answers import Answers, Flags
from families import SOUPED, Scale
from numpy.typing import NDArray

from stockpot.results.contrast import halves
from stockpot.results.resamples import resampled_means
from stockpot.season.grids import affine_grid

Soup = tuple[float, ...]
"""Weights of l_inf, l_2, l_1 and nominal member."""
NORMS = SOUPED[:3]
RESAMPLES = 1000


def one(role: str) -> Soup:
    """A member alone."""
    return tuple(float(name == role) for name in SOUPED)


def between(first: str, second: str, share: float) -> Soup:
    """A soup of two members; `share` is the second's."""
    weights = dict.fromkeys(SOUPED, 0.0)
    weights[first], weights[second] = round(1 - share, 6), round(share, 6)
    return tuple(weights.values())


def ask(norm: str, soup: Soup) -> str:
    """What the answers of a soup under attack in a norm (or to `clean` images) are called."""
    return f"{norm} {' '.join(f'{weight:g}' for weight in soup)}"


def asked(text: str) -> tuple[str, Soup]:
    """The inverse of `ask`."""
    norm, *weights = text.split()
    return norm, tuple(map(float, weights))


FIFTHS = (0.2, 0.4, 0.6, 0.8)
TRIANGLE = [(*map(float, row), 0.0) for row in affine_grid(3, low=0, high=1, step=0.2).tolist()]
WITHOUT = [soup for soup in TRIANGLE if soup[1] == 0]
"""The triangle's soups of l_inf and l_1 alone, members included."""
WITH = [soup for soup in TRIANGLE if soup[1] > 0]
INSIDE = [between("linf", "l2", tenth / 10) for tenth in range(11)]
OUTSIDE = [between("linf", "l2", -tenth / 10) for tenth in range(1, 5)]
"""More than the whole of l_inf, less than nothing of l_2."""
NEIGHBOURS = (("l2", "linf"), ("l2", "l1"), ("linf", "l2"), ("l1", "l2"))
"""A specialist, and whom it is mixed with."""
LINES = (("linf", "l2"), ("linf", "l1"), ("l2", "l1"))


def to_choose() -> list[str]:
    """What is asked of validation images."""
    asks = [ask(norm, soup) for soup in TRIANGLE for norm in NORMS]
    return list(dict.fromkeys([*asks, *(ask("linf", soup) for soup in INSIDE + OUTSIDE)]))


def best(scores: NDArray[np.float64], seed: int = 0) -> int:
    """The best; of equals one that is drawn."""
    return int(np.random.default_rng(seed).choice(np.flatnonzero(scores == scores.max())))


def union(answers: Answers, soup: Soup, norms: tuple[str, ...] = NORMS) -> Flags:
    """Right under attack in every norm."""
    found: Flags = np.logical_and.reduce([answers[ask(norm, soup)] for norm in norms])
    return found


class Choices(NamedTuple):
    """Soups that were chosen on validation images."""

    without: Soup
    with_l2: Soup
    pair: Soup
    """The best of the l_inf - l_1 line under both, for F3."""
    outside: Soup
    inside: Soup
    interior: tuple[Soup, ...]
    """Between a specialist and its neighbour, at the specialist's own norm; by `NEIGHBOURS`."""
    lowest: tuple[tuple[str, Soup, Soup], ...]
    """Norm, lowest interior soup and lower end of each line, for both norms of its ends."""


def choices(found: Answers) -> Choices:
    """Choose."""

    def of(soups: list[Soup], norm: str, sign: int = 1) -> Soup:
        return soups[best(np.array([sign * found[ask(norm, soup)].mean() for soup in soups]))]

    def together(soups: list[Soup], norms: tuple[str, ...] = NORMS) -> Soup:
        return soups[best(np.array([union(found, soup, norms).mean() for soup in soups]))]

    interior = [of([between(*pair, share) for share in FIFTHS], pair[0]) for pair in NEIGHBOURS]
    lowest = [
        (norm, of([between(*pair, share) for share in FIFTHS], norm, -1),
         of([one(role) for role in pair], norm, -1))
        for pair in LINES
        for norm in pair
    ]  # fmt: skip
    return Choices(
        together(WITHOUT), together(WITH), together(WITHOUT, ("linf", "l1")),
        of(OUTSIDE, "linf"), of(INSIDE, "linf"), tuple(interior), tuple(lowest),
    )  # fmt: skip


def to_decide(taken: Choices, scale: Scale) -> dict[str, int]:
    """What is asked of test images for F4 and F5, and of how many."""
    asks = [ask(norm, soup) for soup in (taken.without, taken.with_l2) for norm in NORMS]
    asks += [ask("linf", taken.outside), ask("linf", taken.inside)]
    return dict.fromkeys(asks, scale.judged)


def to_judge(taken: Choices, scale: Scale) -> dict[str, int]:
    """All that is asked of them: for F1, F2 and F3 too, and the members under every attack."""
    part = [ask(norm, soup) for norm, low, end in taken.lowest for soup in (low, end)]
    whole = [ask(norm, one(norm)) for norm in NORMS]
    whole += [ask(pair[0], soup) for pair, soup in zip(NEIGHBOURS, taken.interior, strict=True)]
    whole += [ask(norm, taken.pair) for norm in ("linf", "l1")]
    whole += [ask(norm, one(role)) for role in NORMS for norm in NORMS]
    wide = to_decide(taken, scale) | dict.fromkeys(whole, scale.judged)
    return dict.fromkeys(part, scale.lines) | wide


def grid(scale: Scale) -> list[Soup]:
    """Affine soups of the four members."""
    found = affine_grid(4, low=scale.low, high=1 - scale.low, step=scale.step)
    return [tuple(map(float, row)) for row in found.tolist()]


def cells(scale: Scale) -> list[str]:
    """Clean images, then every corruption at every severity."""
    return ["clean", *(f"{c}:{s}" for c in scale.corruptions for s in scale.severities)]


class Shifts(NamedTuple):
    """What is chosen on corrupted images."""

    tried: NDArray[np.bool_]
    """Soups x cells: which soups met all images that choose."""
    right: NDArray[np.float64]
    """Soups x cells: how many of these images they got right."""
    own: NDArray[np.intp]
    """The best soup of each cell."""
    member: NDArray[np.intp]
    """The best member of each cell, as a row of the grid."""
    single: int
    """The best soup over all corrupted cells."""
    steady: int
    """The best member over all of them."""


def tried_further(first: NDArray[np.bool_], scale: Scale) -> NDArray[np.bool_]:
    """Soups x cells: who is looked at further, of answers soups x cells x images.

    The best of each cell, the best over all corrupted cells, and the members.
    """
    right = first.sum(axis=2)
    tried = np.zeros(right.shape, dtype=bool)
    # A little that is drawn breaks ties.
    drawn = right + np.random.default_rng(0).uniform(0, 0.5, right.shape)
    for cell, column in enumerate(drawn.T):
        tried[np.argsort(-column)[: scale.kept], cell] = True
    tried[np.argsort(-drawn[:, 1:].mean(axis=1))[: scale.overall]] = True
    tried[members_in(scale)] = True
    return tried


def members_in(scale: Scale) -> list[int]:
    """The rows of the grid that are members alone."""
    soups = grid(scale)
    return [soups.index(one(role)) for role in SOUPED]


def shifts(first: NDArray[np.bool_], second: Answers, scale: Scale) -> Shifts:
    """Choose on the first images and on the second ones together."""
    tried = tried_further(first, scale)
    right = first.sum(axis=2).astype(np.float64)
    for soup in range(len(tried)):
        if tried[soup].any():
            right[soup, tried[soup]] += second[f"second {soup}"].sum(axis=1)
    scored = np.where(tried, right, -1.0)
    own = np.array([best(column) for column in scored.T])
    alone = members_in(scale)
    member = np.array([alone[best(column)] for column in right[alone].T])
    everywhere = tried[:, 1:].all(axis=1)
    mean = np.where(everywhere, right[:, 1:].mean(axis=1), -1.0)
    return Shifts(tried, right, own, member, best(mean), alone[best(right[alone, 1:].mean(axis=1))])


def judged_cells(taken: Shifts, scale: Scale) -> dict[int, list[int]]:
    """Soup -> cells in which it is judged: its own ones, all for members and for the single one."""
    found: dict[int, set[int]] = {}
    for cell, soup in enumerate(taken.own):
        found.setdefault(int(soup), set()).add(cell)
    for soup in (taken.single, *members_in(scale)):
        found[soup] = set(range(len(taken.own)))
    return {soup: sorted(places) for soup, places in found.items()}


def judged_rows(kept: Answers, own: NDArray[np.intp], names: int) -> Flags:
    """Cells x images: the answers of each cell's own soup, which was asked about its cells only."""
    rows = []
    for cell, soup in enumerate(own):
        table = kept[f"judged {soup}"]
        # A soup that was asked about all cells has a row for each; another for its own, in order.
        place = cell if len(table) == names else int((own[:cell] == soup).sum())
        rows.append(table[place])
    found: Flags = np.stack(rows)
    return found


def few_labels(table: Flags, share: float, draws: int = 50) -> NDArray[np.float32]:
    """For each image how often a soup is right about it that was chosen without it.

    Args:
        table: soups x cells x images.
        share: of the half that chooses.
        draws: splits into halves.
    """
    soups, places, n = table.shape
    total, times = np.zeros(n), np.zeros(n)
    for seed in range(draws):
        choosing, judging = halves(n, seed)
        few = np.random.default_rng(seed).permutation(choosing)[: max(1, round(share * n / 2))]
        right = table[:, :, few].sum(axis=2) + np.random.default_rng(seed).uniform(
            0, 0.5, (soups, places)
        )
        best = right.argmax(axis=0)
        total[judging] += table[best, np.arange(places)][:, judging].mean(axis=0)
        times[judging] += 1
    return (total / np.maximum(times, 1)).astype(np.float32)


def top_weights(
    first: Flags, kept: Answers, tried: NDArray[np.bool_], scale: Scale, count: int = 5
) -> NDArray[np.float64]:
    """The mean weights of each cell's best five soups: resamples x cells x members.

    In each resample of the images that choose, the five are chosen anew; the first is the images
    as they are.
    """
    weights, found = np.array(grid(scale)), []
    for cell in range(first.shape[1]):
        rows = np.flatnonzero(tried[:, cell])
        second = [kept[f"second {s}"][int(tried[s, :cell].sum())] for s in rows]
        right = np.concatenate([first[rows, cell], np.stack(second)], axis=1).astype(np.float64)
        drawn = resampled_means(right.T, seed=0, resamples=RESAMPLES)
        scores = np.concatenate([right.mean(axis=1)[None], drawn])
        scores = scores + np.random.default_rng(cell).uniform(0, 1e-9, scores.shape)
        top = np.argsort(-scores, axis=1)[:, :count]
        found.append(weights[rows][top].mean(axis=1))
    return np.stack(found, axis=1)
