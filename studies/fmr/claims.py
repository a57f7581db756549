"""The differences of plan.md, from who was right on which image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from searches import AUTOENCODERS, CORRUPTIONS, ORACLES, PAIR, SEEDS, cell_name
from verdicts import Finding, Part, Quantity, correlation

from stockpot.results.groups import Draws, resampled
from stockpot.results.packed import unpack_bits

ALIKE = 0.8
"""From this correlation on two rankings count as the same."""
IMMUNE, FALLEN = 0.9, 0.8
"""Shares of its accuracy that a network keeps: nearly immune, and surely not."""
VALIDATED = {"reconstruction": "validated", "perturbation": "perturbed"}
"""Which images count, by the reading of the first candidate."""


class Answers:
    """One dataset: who was right on which image, in every cell."""

    def __init__(
        self,
        data: str,
        outcomes: Mapping[str, Any],
        kinds: Sequence[str],
        readings: Sequence[str] = ("reconstruction",),
    ) -> None:
        """Take outcomes; `readings` of the first candidate are those that G1, G5 and G6 ask."""
        self.data, self.kinds, self.readings = data, tuple(kinds), tuple(readings)
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
        reading: str = "reconstruction",
    ) -> Quantity:
        """The mean over the validated images (of those among them) of each seed's cell."""
        keys = key if callable(key) else lambda seed: key
        kept = [self.flags(cell(seed), VALIDATED[reading]) for seed in SEEDS]
        if among is not None:
            kept = [flags * among for flags in kept]
        right = [self.flags(cell(seed), keys(seed)) * flags
                 for seed, flags in zip(SEEDS, kept, strict=True)]  # fmt: skip
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.mean(right) / self.mean(kept)

    # What stands in the tables.

    @cache  # noqa: B019
    def accuracy(
        self, kind: str, generator: str, key: str = "correct", reading: str = "reconstruction"
    ) -> Quantity:
        """SA (`correct`) or PA (`withstood`) over the validated images."""
        return self.share(lambda seed: cell_name(kind, seed, generator), key, reading=reading)

    @cache  # noqa: B019
    def fmr(self, kind: str, generator: str, reading: str = "reconstruction") -> Quantity:
        """Matched FMR: both accuracies over the validated images."""
        stood, whole = (self.accuracy(kind, generator, key, reading)
                        for key in ("withstood", "correct"))  # fmt: skip
        return stood / whole

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
        seeds = [f"{name}-{seed}" if name in self.kinds else name for seed in SEEDS]
        return self.mean([self.flags("clean", each) for each in seeds])

    # The claims.

    def g1(self) -> list[Part]:
        def lost(kind: str, generator: str, reading: str) -> Quantity:
            whole, stood = (self.accuracy(kind, generator, key, reading)
                            for key in ("correct", "withstood"))  # fmt: skip
            return whole - stood

        return [self.part(f"`{k}`, {g}{self.told(r)}", lost(k, g, r))
                for r, k, g in product(self.readings, self.kinds, AUTOENCODERS)]  # fmt: skip

    def g2(self) -> list[Part]:
        def gain(viewer: str, maker: str, generator: str) -> Quantity:
            return self.seen(maker, viewer, generator) - self.seen(viewer, viewer, generator)

        return [
            self.part(f"`{viewer}` on images of `{maker}`",
                      over(lambda g, v=viewer, m=maker: gain(v, m, g)))
            for viewer, maker in permutations(self.kinds, 2)
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
            np.mean([of(*each) for each in product(PAIR, AUTOENCODERS)], axis=0)
            for of in (
                lambda k, g: self.rate(k, g, "own") - self.rate(k, g, "larger"),
                lambda k, g: self.spread(k, g, "larger") - self.spread(k, g, "main"),
            )
        )
        return [self.part("VR", rates), self.part("spread", spreads)]

    def g5(self) -> list[Part]:
        static = [self.static(kind) for kind in self.kinds]
        return [self.part(f"{g}{self.told(r)}", ALIKE - correlation(self.scores(g, r), static))
                for r, g in product(self.readings, AUTOENCODERS)]  # fmt: skip

    def g6(self) -> list[Part]:
        found = []
        for reading in self.readings:
            first, second = (self.scores(generator, reading) for generator in AUTOENCODERS)
            label = f"{' and '.join(AUTOENCODERS)}{self.told(reading)}"
            found.append(self.part(label, correlation(first, second) - ALIKE))
        return found

    def told(self, reading: str) -> str:
        """A reading, where there are several."""
        return f", {reading} first" if len(self.readings) > 1 else ""

    def o1(self) -> list[Part]:
        return [self.part(f"{name} oracle less `{kind}`",
                          self.clean(f"oracle-{name}") - self.clean(kind))
                for name, kind in product(ORACLES, self.kinds)]  # fmt: skip

    def o2(self) -> list[Part]:
        def gain(maker: str, viewer: str, generator: str) -> Quantity:
            return self.judge(maker, generator) - self.seen(maker, viewer, generator)

        return [
            self.part(f"images of `{maker}`, less `{viewer}`",
                      over(lambda g, v=viewer, m=maker: gain(m, v, g)))
            for maker, viewer in permutations(self.kinds, 2)
        ]  # fmt: skip

    @cache  # noqa: B019
    def judge(self, maker: str, generator: str) -> Quantity:
        """Accuracy of the second oracle on images that the first one accepted."""
        return self.share(lambda seed: cell_name(maker, seed, generator), "seen oracle-second")

    def scores(self, generator: str, reading: str = "reconstruction") -> list[Quantity]:
        return [self.fmr(kind, generator, reading) for kind in self.kinds]

    def part(self, label: str, values: Quantity) -> Part:
        return Part(self.data, label, values)

    def complete(self, claim: str) -> bool:
        """Whether all cells are there that a claim asks for."""
        names = ["clean"] if claim == "O1" else [
            cell_name(*each) for each in product(self.kinds, SEEDS, AUTOENCODERS)
        ]  # fmt: skip
        names += ["static"] * (claim == "G5")
        if claim == "G4":
            names += [
                cell_name(*each) for each in product(PAIR, SEEDS, AUTOENCODERS, ("larger", "first"))
            ]
        return self.has(*names)


CLAIMS: dict[str, Callable[[Answers], list[Part]]] = {
    "G1": Answers.g1, "G2": Answers.g2, "G3": Answers.g3, "G4": Answers.g4, "G5": Answers.g5,
    "G6": Answers.g6, "O1": Answers.o1, "O2": Answers.o2,
}  # fmt: skip


def over(of: Callable[[str], Quantity]) -> Quantity:
    """The mean over both autoencoders."""
    return np.mean([of(generator) for generator in AUTOENCODERS], axis=0)


def findings(known: Sequence[Answers]) -> list[Finding]:
    """Every claim with its differences on the data for which all cells are there."""
    found = []
    for claim, make in CLAIMS.items():
        parts = [part for answers in known if answers.complete(claim) for part in make(answers)]
        if parts:
            found.append(Finding(claim, tuple(parts)))
    return found
