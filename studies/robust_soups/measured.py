"""Soups under attack and on corrupted images: the answers that the claims are judged by.

Every part writes what it has found every few seconds, stops when its time is over, and goes on
where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from answers import Answers, Flags
from chosen import (
    NORMS,
    Choices,
    Soup,
    ask,
    asked,
    cells,
    choices,
    grid,
    judged_cells,
    members_in,
    shifts,
    to_choose,
    to_decide,
    to_judge,
    tried_further,
)
from families import JOINT, SOUPED, Member, Scale, read_member
from torch import Tensor

from stockpot.attack.threat import Threats
from stockpot.corrupt.apply import corrupt
from stockpot.datasets.dataset import Dataset
from stockpot.measure.adversarial.protocols import named_protocol
from stockpot.models.forward.folding import renewed_copy
from stockpot.pool.batch_norm import Statistics
from stockpot.pool.family import read_pool
from stockpot.pool.pool import Pool
from stockpot.season.robust import evaluate_under
from stockpot.season.shots import Shots, read_shots

Asks = Callable[[Choices, Scale], dict[str, int]]


def strongly(taken: Choices, scale: Scale) -> dict[str, int]:
    """What F4 and F5 are decided by, on fewer images."""
    return dict.fromkeys(to_decide(taken, scale), scale.strong)


class Photographs(NamedTuple):
    """Images to train on, to choose on, and to judge on."""

    learned: Dataset
    validation: Dataset
    test: Dataset


class Measuring:
    """The parts of the study that ask members and soups, one method each: is it finished?"""

    def __init__(
        self, folder: Path, scale: Scale, data: Photographs, device: torch.device, until: float
    ) -> None:
        self.folder, self.scale, self.data = folder, scale, data
        self.device, self.until = device, until
        self.size = next(data.test.images.batches(1, None)).shape[-1]

    def answers(self, name: str) -> Answers:
        return Answers(self.folder / "answers" / f"{name}.npz")

    @property
    def late(self) -> bool:
        return time.monotonic() > self.until

    def pool(self, members: Iterable[Member]) -> Pool:
        """Members as they are kept; BatchNorm by one rule for all soups of them."""
        classes = self.data.test.classes
        read = {each.name: read_member(self.folder, each, self.scale, classes, self.size)
                for each in members}  # fmt: skip
        pool = read_pool(read, self.device)
        source = self.data.learned.take(range(self.scale.source))
        seen = read_shots(source, pool.model, device=self.device, batch_size=500)
        pool.statistics = Statistics("recompute", seen.batches)
        return pool

    def family(self, family: Member, roles: tuple[str, ...] = SOUPED) -> Pool:
        return self.pool(Member(family.seed, family.base, role) for role in roles)

    def choose(self, family: Member) -> bool:
        """The soups of interest on validation images."""
        asks = dict.fromkeys(to_choose(), self.scale.validation)
        pool, name = self.family(family, NORMS), f"{family.family}-choose"
        return self.attacked(name, pool, asks, self.data.validation, steps=self.scale.quick)

    def decide(self, family: Member) -> bool:
        """What was chosen for F4 and F5, on test images."""
        return self.chosen(family, "judge", to_decide)

    def judge(self, family: Member) -> bool:
        """What was chosen for the other findings, and the members."""
        return self.chosen(family, "judge", to_judge)

    def chosen(self, family: Member, part: str, asks: Asks, protocol: str = "soups-cifar") -> bool:
        taken = choices(self.answers(f"{family.family}-choose"))
        pool, name = self.family(family, NORMS), f"{family.family}-{part}"
        return self.attacked(name, pool, asks(taken, self.scale), self.data.test, protocol)

    def strong(self, family: Member) -> bool:
        """The same soups under a stronger attack, on fewer images."""
        return self.chosen(family, "strong", strongly, "soups-strong")

    def joint(self, trained: Member) -> bool:
        """A model that was trained against several norms at once."""
        norms = JOINT[trained.role][1].split(",")
        asks = {ask(norm, (1.0,)): self.scale.judged for norm in norms}
        return self.attacked(trained.name, self.pool([trained]), asks, self.data.test)

    def attacked(
        self,
        name: str,
        pool: Pool,
        asks: Mapping[str, int],
        data: Dataset,
        protocol: str = "soups-cifar",
        steps: int | None = None,
    ) -> bool:
        """Answers under attack, one soup and norm after the other."""
        kept, way = self.answers(name), named_protocol(protocol)
        settings: dict[str, Any] = dict(way.params) | {"forward": "folded"}
        settings["precision"] = "bf16" if self.device.type == "cuda" else "fp32"
        settings["steps"] = steps or self.scale.looks
        if protocol == "soups-strong":
            settings["steps"], settings["restarts"] = self.scale.strong_looks
        for text, n in asks.items():
            if text in kept and len(kept[text]) >= n:
                continue
            if self.late:
                kept.save()
                return False
            norm, soup = asked(text)
            (threat,) = (each for each in way.threats if each.norm == norm)
            weights = torch.tensor([soup[: len(pool)]], dtype=torch.float64)
            shots = self.shots(pool, data, n)
            found = evaluate_under(
                pool, weights, shots, Threats((threat,)), by_norm=way.by_norm, **settings
            )
            kept.add(text, found[str(threat)].correct[0])
            clean = ask("clean", soup)
            if clean not in kept or len(kept[clean]) < n:
                kept.add(clean, found["clean"].correct[0])
        kept.save()
        return True

    def shots(self, pool: Pool, data: Dataset, n: int) -> Shots:
        # Where few leave the batch, a large one repays the recording of its steps.
        return read_shots(data.take(range(n)), pool.model, device=self.device, batch_size=5000)

    def control(self, base: Member) -> bool:
        """Clean answers of a base, of those trained apart from it, and halfway between them."""
        kept = self.answers("control")
        for one, two in ((other, base.seed) for other in range(base.seed)):
            if f"{one} {two}" not in kept:
                pool = self.pool(Member(seed, "linf", "linf") for seed in (one, two))
                pixels = self.pixels("clean", range(self.scale.judged))
                labels = self.targets[: self.scale.judged]
                rows = [self.right(pool, (1 - w, w), pixels, labels) for w in (0.0, 0.5, 1.0)]
                kept.add(f"{one} {two}", np.stack(rows))
        kept.save()
        return True

    @cached_property
    def targets(self) -> Tensor:
        return self.data.test.labels.to(self.device)

    def pixels(self, cell: str, rows: range) -> Tensor:
        """Test images of a cell; what happens to an image depends on its number alone."""
        whole = torch.cat(list(self.data.test.images.take(rows).batches(5000, None)))
        found = whole.to(self.device)
        if cell == "clean":
            return found
        name, _, severity = cell.partition(":")
        return corrupt(found, name, int(severity), seed=list(rows), profile="cifar")

    def logits(self, pool: Pool, soup: Soup, pixels: Tensor) -> Tensor:
        # A GPU wants few large batches, a CPU's cache small ones; ranks need no last digits.
        size = 4000 if self.device.type == "cuda" else 50
        model = pool.load(torch.tensor(soup, dtype=torch.float64))
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16):
            fast = renewed_copy(model, pixels[:8].float() / 255, torch.bfloat16)
            parts = [part.contiguous(memory_format=torch.channels_last)
                     for part in pixels.split(size)]  # fmt: skip
            return torch.cat([fast(part).float() for part in parts])

    def right(self, pool: Pool, soup: Soup, pixels: Tensor, labels: Tensor) -> Flags:
        found: Flags = (self.logits(pool, soup, pixels).argmax(dim=1) == labels).cpu().numpy()
        return found

    def shift(self, family: Member) -> bool:
        """All affine soups on corrupted images: the best go on, and what is chosen is judged."""
        scale, kept = self.scale, self.answers(f"{family.family}-shift")
        pool, soups, names = self.family(family), grid(scale), cells(scale)
        choosing = scale.first + scale.second
        made = torch.stack([self.pixels(c, range(choosing + scale.shifted)) for c in names])
        first, second, last = made.split([scale.first, scale.second, scale.shifted], dim=1)
        spans = (slice(0, scale.first), slice(scale.first, choosing), slice(choosing, None))
        answers = [self.targets[: choosing + scale.shifted][span] for span in spans]

        def met(part: str, soup: int, places: list[int], pixels: Tensor, labels: Tensor) -> bool:
            """Ask one soup about some cells; false where it is too late."""
            if f"{part} {soup}" in kept:
                return True
            if self.late:
                kept.save()
                return False
            shown = pixels[places].flatten(0, 1)
            found = self.right(pool, soups[soup], shown, labels.repeat(len(places)))
            kept.add(f"{part} {soup}", found.reshape(len(places), -1))
            return True

        everywhere = list(range(len(names)))
        if not all(met("first", soup, everywhere, first, answers[0]) for soup in range(len(soups))):
            return False
        tried = tried_further(first_of(kept, len(soups)), scale)
        for soup in np.flatnonzero(tried.any(axis=1)).tolist():
            places = np.flatnonzero(tried[soup]).tolist()
            if not met("second", soup, places, second, answers[1]):
                return False
        if "ensemble" not in kept:
            if self.late:
                kept.save()
                return False
            self.ensemble(kept, pool, last, answers[2])
        taken = shifts(first_of(kept, len(soups)), kept, scale)
        for soup, places in judged_cells(taken, scale).items():
            if not met("judged", soup, places, last, answers[2]):
                return False
        kept.save()
        return True

    def ensemble(self, kept: Answers, pool: Pool, pixels: Tensor, labels: Tensor) -> None:
        """Cells x images: the members alone, and the mean of their probabilities."""
        shown, meant = pixels.flatten(0, 1), labels.repeat(len(pixels))
        total = torch.zeros((), device=self.device)
        for soup in members_in(self.scale):
            found = self.logits(pool, grid(self.scale)[soup], shown)
            right = (found.argmax(dim=1) == meant).view(len(pixels), -1)
            kept.add(f"judged {soup}", right.cpu().numpy())
            total = total + found.softmax(dim=1)
        right = (total.argmax(dim=1) == meant).view(len(pixels), -1)
        kept.add("ensemble", right.cpu().numpy())

    def labels(self, family: Member) -> bool:
        """All affine soups on one severity of every corruption, for choices with few labels."""
        scale, kept = self.scale, self.answers(f"{family.family}-labels")
        pool, middle = self.family(family), scale.severities[len(scale.severities) // 2]
        rows = range(scale.labelled)
        made = [self.pixels(f"{name}:{middle}", rows) for name in scale.corruptions]
        labels = self.targets[: scale.labelled].repeat(len(made))
        for number, soup in enumerate(grid(scale)):
            if self.late:
                kept.save()
                return False
            if str(number) not in kept:
                found = self.right(pool, soup, torch.cat(made), labels)
                kept.add(str(number), found.reshape(len(made), -1))
        kept.save()
        return True


def first_of(kept: Answers, soups: int) -> Flags:
    """Soups x cells x images that every soup met."""
    found: Flags = np.stack([kept[f"first {soup}"] for soup in range(soups)])
    return found
