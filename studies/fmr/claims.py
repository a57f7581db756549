"""The differences of plan.md and their verdicts, from who was right on which image.

A quantity is a row of numbers: its value over all images and seeds, its value for each seed, and
its value in every resample of images and seeds together. What is computed from several quantities,
number by number, is again one; so ratios and rank correlations need nothing of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import permutations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from study import CORRUPTIONS, DATA, KINDS, LEARNED, ORACLES, PAIR, SEEDS, cell_name

from stockpot.results.contrast import Contrast, Verdict, every_of, verdict
from stockpot.results.groups import Draws, resampled
from stockpot.results.packed import unpack_bits

Quantity = NDArray[np.float64]
ALIKE = 0.8
"""From this correlation on two rankings count as the same."""
IMMUNE, FALLEN = 0.9, 0.8
"""Shares of its accuracy that a network keeps: nearly immune, and surely not."""
ONE, DRAWN = 1, 1 + len(SEEDS)
"""Where the seeds' own values begin, and where the resamples do."""


class Part(NamedTuple):
    """One difference, less its margin."""

    data: str
    label: str
    values: Quantity

    def contrast(self, confidence: float = 0.95) -> Contrast:
        outside = 50 * (1 - confidence)
        low, high = np.percentile(self.values[DRAWN:], [outside, 100 - outside])
        return Contrast(float(self.values[0]), float(low), float(high))

    def said(self, confidence: float = 0.95) -> Verdict:
        """By the interval; and every seed must be on that side."""
        found = self.contrast(confidence)
        told = verdict(found.low, found.high)
        sides = [(value > 0) == (told == "held") for value in self.values[ONE:DRAWN]]
        return told if told == "not told apart" or all(sides) else "not told apart"


class Finding(NamedTuple):
    """A claim with all of its differences."""

    claim: str
    parts: tuple[Part, ...]

    @property
    def verdict(self) -> Verdict:
        """All must hold at 95 % each; one does not at 95 % for all of them together."""
        together = [part.said(1 - 0.05 / len(self.parts)) for part in self.parts]
        return every_of(together, [part.said() for part in self.parts])

    @property
    def worst(self) -> Part:
        """The difference that lies lowest."""
        return min(self.parts, key=lambda part: float(part.values[0]))

    @property
    def data(self) -> list[str]:
        return list(dict.fromkeys(part.data for part in self.parts))


class Answers:
    """One dataset: who was right on which image, in every cell."""

    def __init__(self, data: str, outcomes: Mapping[str, Any]) -> None:
        self.data = data
        own = outcomes["data"][data]
        self.images, self.tested = outcomes["images"], own["tested"]
        self.cells: Mapping[str, Mapping[str, Any]] = own["cells"]
        self.steps: Mapping[str, Any] = own["steps"]
        self.labels = np.array([int(label) for label in own["labels"]])
        self.draws: Draws = {}

    def has(self, *names: str) -> bool:
        return all(name in self.cells for name in names)

    def flags(self, cell: str, key: str) -> NDArray[np.float32]:
        n = self.tested if cell == "clean" else self.images
        return unpack_bits(self.cells[cell][key], n).astype(np.float32)

    def mean(self, runs: Sequence[NDArray[np.float32]]) -> Quantity:
        """Of one row of answers for each seed."""
        drawn = resampled([{"x": run} for run in runs], ["x"], self.draws)
        each = [float(run.mean()) for run in runs]
        return np.array([np.mean(each), *each, *drawn])

    def share(
        self,
        cell: Callable[[int], str],
        key: Callable[[int], str] | str,
        among: NDArray[np.bool_] | None = None,
    ) -> Quantity:
        """The mean over the validated images (of those among them) of each seed's cell."""
        keys = key if callable(key) else lambda seed: key
        kept = [self.flags(cell(seed), "validated") for seed in SEEDS]
        if among is not None:
            kept = [flags * among for flags in kept]
        right = [self.flags(cell(seed), keys(seed)) * flags
                 for seed, flags in zip(SEEDS, kept, strict=True)]  # fmt: skip
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.mean(right) / self.mean(kept)

    # What stands in the tables.

    @cache  # noqa: B019
    def accuracy(self, kind: str, generator: str, key: str = "correct") -> Quantity:
        """SA (`correct`) or PA (`withstood`) over the validated images."""
        return self.share(lambda seed: cell_name(kind, seed, generator), key)

    @cache  # noqa: B019
    def fmr(self, kind: str, generator: str) -> Quantity:
        """Matched FMR: both accuracies over the validated images."""
        return self.accuracy(kind, generator, "withstood") / self.accuracy(kind, generator)

    @cache  # noqa: B019
    def seen(self, maker: str, viewer: str, generator: str) -> Quantity:
        """Accuracy of one kind on images made against another, seed by seed."""
        return self.share(
            lambda seed: cell_name(maker, seed, generator), lambda seed: f"seen {viewer}-{seed}"
        )

    @cache  # noqa: B019
    def seen_whole(self, maker: str, viewer: str, generator: str) -> Quantity:
        """Accuracy of the viewer on the same images as they were."""
        kept = [self.flags(cell_name(maker, seed, generator), "validated") for seed in SEEDS]
        right = [self.flags(cell_name(viewer, seed, generator), "correct") * flags
                 for seed, flags in zip(SEEDS, kept, strict=True)]  # fmt: skip
        return self.mean(right) / self.mean(kept)

    def twins(self, kind: str, generator: str) -> Quantity:
        """Accuracy of a kind on images made against its own kind with another seed."""
        return self.share(
            lambda seed: cell_name(kind, (seed + 1) % len(SEEDS), generator),
            lambda seed: f"seen {kind}-{seed}",
        )

    @cache  # noqa: B019
    def static(self, kind: str) -> Quantity:
        """Accuracy under corruptions relative to that on the images as they are."""
        runs = [np.mean([self.flags("static", f"{name} {kind}-{seed}") for name in CORRUPTIONS],
                        axis=0) for seed in SEEDS]  # fmt: skip
        whole = [self.flags(cell_name(kind, seed, "vqgan"), "correct") for seed in SEEDS]
        return self.mean(runs) / self.mean(whole)

    def spread(self, kind: str, generator: str, part: str) -> Quantity:
        """The standard deviation over classes of matched FMR."""

        def cell(seed: int) -> str:
            return cell_name(kind, seed, generator, part)

        found = []
        for label in np.unique(self.labels):
            own = self.labels == label
            with np.errstate(
                divide="ignore", invalid="ignore"
            ):  # classes without a validated image
                found.append(self.share(cell, "withstood", own) / self.share(cell, "correct", own))
        return np.nanstd(np.array(found), axis=0)

    def rate(self, kind: str, generator: str, step: str) -> Quantity:
        """VR by the first perturbation, over all images."""
        return self.mean([self.flags(cell_name(kind, seed, generator, "first"), step)
                          for seed in SEEDS])  # fmt: skip

    @cache  # noqa: B019
    def clean(self, name: str) -> Quantity:
        """Accuracy on all test images; an oracle has one training for all seeds."""
        seeds = [f"{name}-{seed}" if name in KINDS else name for seed in SEEDS]
        return self.mean([self.flags("clean", each) for each in seeds])

    # The claims.

    def g1(self) -> list[Part]:
        return [
            self.part(f"`{kind}`, {generator}",
                      self.accuracy(kind, generator) - self.accuracy(kind, generator, "withstood"))
            for kind, generator in product(KINDS, LEARNED)
        ]  # fmt: skip

    def g2(self) -> list[Part]:
        def gain(viewer: str, maker: str, generator: str) -> Quantity:
            return self.seen(maker, viewer, generator) - self.seen(viewer, viewer, generator)

        return [
            self.part(f"`{viewer}` on images of `{maker}`",
                      over(lambda g, v=viewer, m=maker: gain(v, m, g)))
            for viewer, maker in permutations(KINDS, 2)
        ]  # fmt: skip

    def g3(self) -> list[Part]:
        plain, robust = PAIR
        whole = over(lambda g: self.accuracy(robust, g))
        foreign = over(lambda g: self.seen(plain, robust, g))
        own = over(lambda g: self.accuracy(robust, g, "withstood"))
        return [self.part(f"on images of `{plain}`", foreign - IMMUNE * whole),
                self.part("on its own", FALLEN * whole - own)]  # fmt: skip

    def g4(self) -> list[Part]:
        rates, spreads = (
            np.mean([of(kind, generator) for kind, generator in product(PAIR, LEARNED)], axis=0)
            for of in (
                lambda k, g: self.rate(k, g, "own") - self.rate(k, g, "larger"),
                lambda k, g: self.spread(k, g, "larger") - self.spread(k, g, "main"),
            )
        )
        return [self.part("VR", rates), self.part("spread", spreads)]

    def g5(self) -> list[Part]:
        static = [self.static(kind) for kind in KINDS]
        return [self.part(generator, ALIKE - correlation(self.scores(generator), static))
                for generator in LEARNED]  # fmt: skip

    def g6(self) -> list[Part]:
        first, second = (self.scores(generator) for generator in LEARNED)
        return [self.part(" and ".join(LEARNED), correlation(first, second) - ALIKE)]

    def o1(self) -> list[Part]:
        return [self.part(f"{name} oracle less `{kind}`",
                          self.clean(f"oracle-{name}") - self.clean(kind))
                for name, kind in product(ORACLES, KINDS)]  # fmt: skip

    def o2(self) -> list[Part]:
        def gain(maker: str, viewer: str, generator: str) -> Quantity:
            return self.judge(maker, generator) - self.seen(maker, viewer, generator)

        return [
            self.part(f"images of `{maker}`, less `{viewer}`",
                      over(lambda g, v=viewer, m=maker: gain(m, v, g)))
            for maker, viewer in permutations(KINDS, 2)
        ]  # fmt: skip

    @cache  # noqa: B019
    def judge(self, maker: str, generator: str) -> Quantity:
        """Accuracy of the second oracle on images that the first one accepted."""
        return self.share(lambda seed: cell_name(maker, seed, generator), "seen oracle-second")

    def scores(self, generator: str) -> list[Quantity]:
        return [self.fmr(kind, generator) for kind in KINDS]

    def part(self, label: str, values: Quantity) -> Part:
        return Part(self.data, label, values)

    def complete(self, claim: str) -> bool:
        """Whether all cells are there that a claim asks for."""
        names = ["clean"] if claim == "O1" else [
            cell_name(*each) for each in product(KINDS, SEEDS, LEARNED)
        ]  # fmt: skip
        names += ["static"] * (claim == "G5")
        if claim == "G4":
            names += [
                cell_name(*each) for each in product(PAIR, SEEDS, LEARNED, ("larger", "first"))
            ]
        return self.has(*names)


CLAIMS: dict[str, Callable[[Answers], list[Part]]] = {
    "G1": Answers.g1, "G2": Answers.g2, "G3": Answers.g3, "G4": Answers.g4, "G5": Answers.g5,
    "G6": Answers.g6, "O1": Answers.o1, "O2": Answers.o2,
}  # fmt: skip


def over(of: Callable[[str], Quantity]) -> Quantity:
    """The mean over both autoencoders."""
    return np.mean([of(generator) for generator in LEARNED], axis=0)


def correlation(first: Sequence[Quantity], second: Sequence[Quantity]) -> Quantity:
    """Spearman's, over kinds, number by number."""
    ranks = [rankdata(np.array(side), axis=0) for side in (first, second)]
    one, two = (each - each.mean(axis=0) for each in ranks)
    with np.errstate(invalid="ignore"):
        found = (one * two).sum(axis=0) / np.sqrt((one**2).sum(axis=0) * (two**2).sum(axis=0))
    return np.nan_to_num(found)  # a ranking in which all are equal says nothing


def findings(outcomes: Mapping[str, Any]) -> list[Finding]:
    """Every claim with its differences on the data for which all cells are there."""
    known = [Answers(data, outcomes) for data in DATA if data in outcomes["data"]]
    found = []
    for claim, make in CLAIMS.items():
        parts = [part for answers in known if answers.complete(claim) for part in make(answers)]
        if parts:
            found.append(Finding(claim, tuple(parts)))
    return found
