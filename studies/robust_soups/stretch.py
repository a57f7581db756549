"""Run the study for some time, one thing at a time, in the order of the plan.

    python studies/robust_soups/stretch.py runs/soups --seconds 540 --left 1600 --out "$OUT"

What is finished lies in the folder: `kept` (weights), `answers` (a bit for each image) and, of a
training that was stopped, `state`. Called again with the same folder it goes on. On a fresh
machine `kept` and `answers` are enough: no training begins that would not end in the time that is
left to the machine (`--left`), so that none is lost.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Timer

import torch
from families import JOINT, SOUPED, TOY, Member, Scale, place_of, train_member
from measured import Measuring, Photographs
from travel import hand_out, take_in

from stockpot.datasets.load import load_dataset
from stockpot.engine import pick_device
from stockpot.engine.interrupt import Interrupted, ask_to_stop
from stockpot.files import write_atomic

LATER = 2
"""The first seed whose weights were at hand for what comes after `shift` (plan.md)."""
EPOCH = 5.8
"""Seconds of an epoch against one norm, before one has been timed here."""


@dataclass(frozen=True)
class Task:
    """Something to measure: the members it needs, the file of its answers, and itself."""

    name: str
    needs: tuple[Member, ...]
    file: str
    run: Callable[[], bool]


def order(scale: Scale) -> Iterator[tuple[str, Member]]:
    """Parts and the members (or families) that they are about, by what they decide.

    Each seed is trained and measured whole before the next one, so that every stretch ends with
    verdicts; then labels, the stronger attack and joint trainings; then bases of other norms. Seeds
    after those that decide come to `shift`, which is decided, last.
    """
    seeds = range(scale.seeds)
    bases = [Member(seed, "linf", "linf") for seed in seeds]
    for seed, base in zip(seeds, bases, strict=True):
        for role in ("linf", "l1", "l2", "nominal"):
            yield "train", Member(seed, "linf", role)
        yield from ((part, base) for part in ("choose", "decide"))
        if seed < scale.final:
            yield "shift", base
        if seed:
            yield "control", base
    later = bases[min(LATER, scale.seeds - 1) :]
    yield from (("judge", base) for base in bases)
    yield from ((part, base) for base in later for part in ("labels", "strong"))
    for seed in seeds:
        for role in ("sat2", "max2"):
            yield "train", Member(seed, "linf", role)
            yield "joint", Member(seed, "linf", role)
    yield from (("shift", base) for base in bases[scale.final :])
    yield "train", Member(later[0].seed, "linf", "max3")
    yield "joint", Member(later[0].seed, "linf", "max3")
    for norm in ("l2", "l1"):
        for role in (norm, *(other for other in ROBUST if other != norm)):
            yield "train", Member(0, norm, role)
        yield from ((part, Member(0, norm, norm)) for part in ("choose", "decide", "judge"))


ROBUST = SOUPED[:3]
FILES = {"decide": "judge"}
"""Parts that write where another does."""


class Stretch:
    """A folder, a scale, images, a device, and the time."""

    def __init__(
        self,
        folder: Path,
        scale: Scale,
        data: Photographs,
        device: torch.device,
        *,
        seconds: float = 1e9,
        left: float = 1e9,
        out: Path | None = None,
        save_every: float = 60.0,
    ) -> None:
        begun = time.monotonic()
        self.folder, self.scale, self.data, self.device = folder, scale, data, device
        self.until, self.end = begun + seconds, begun + left
        self.out, self.save_every = out, save_every
        self.measuring = Measuring(folder, scale, data, device, self.until)
        self.begun = begun

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.begun:6.1f} s  {text}", flush=True)

    def measurements(self) -> list[Task]:
        return [self.measurement(*each) for each in order(self.scale) if each[0] != "train"]

    def measurement(self, part: str, about: Member) -> Task:
        roles = SOUPED if part in ("shift", "labels") else ROBUST
        needs = tuple(Member(about.seed, about.base, role) for role in roles)
        file = f"{about.family}-{FILES.get(part, part)}"
        if part == "joint":
            needs, file = (about,), about.name
        if part == "control":
            needs = tuple(Member(seed, "linf", "linf") for seed in range(about.seed + 1))
            file = part
        run = partial(getattr(self.measuring, part), about)
        return Task(f"{part} {about.name}", needs, file, run)

    @property
    def epoch(self) -> float:
        """Seconds of an epoch against one norm: the last one timed, or what it once was."""
        known = self.folder / "epoch.json"
        return float(json.loads(known.read_text())) if known.exists() else EPOCH

    def trained(self, member: Member) -> bool:
        """Train a member as long as there is time; is it finished?"""
        last = time.monotonic()

        def report(step: int, total: int, seen: dict[str, float]) -> None:
            nonlocal last
            now = time.monotonic()
            self.say(f"{member.name}: step {step} of {total}, loss {seen['loss']:.3f}, "
                     f"{now - last:.1f} s")  # fmt: skip
            if member.passes() == 1:
                write_atomic(self.folder / "epoch.json", json.dumps(now - last))
            last = now

        timer = Timer(max(self.until - time.monotonic(), 0), ask_to_stop)
        timer.daemon = True
        timer.start()
        try:
            train_member(
                self.folder, member, self.scale, self.data.learned, self.device,
                seconds=self.save_every, report=report,
            )  # fmt: skip
        except Interrupted as stop:
            self.say(f"{member.name}: {stop.saved}")
            return False
        finally:
            timer.cancel()
        return True

    def done(self) -> set[str]:
        known = self.folder / "done.json"
        return set(json.loads(known.read_text())) if known.exists() else set()

    def there(self, member: Member) -> bool:
        return place_of(self.folder, member).exists()

    def run(self) -> bool:
        """Do what there is time for; whether everything is finished."""
        for part, about in order(self.scale):
            if time.monotonic() > self.until:
                break
            if part == "train":
                if self.to_train(about):
                    self.say(f"train {about.name}: begins")
                    if not self.trained(about):
                        break
                    self.hand_out()
                continue
            task = self.measurement(part, about)
            if task.name in self.done() or not all(map(self.there, task.needs)):
                continue
            self.say(f"{task.name}: begins")
            if not task.run():
                break
            write_atomic(self.folder / "done.json", json.dumps(sorted(self.done() | {task.name})))
            self.say(f"{task.name}: done")
        self.hand_out()
        return {task.name for task in self.measurements()} <= self.done()

    def to_train(self, member: Member) -> bool:
        """Whether a member is missing, wanted, and can be trained here to its end.

        One that finished measurements rest on is not trained again: on a GPU it would be another.
        """
        done, measurements = self.done(), self.measurements()
        wanted = {m for task in measurements if task.name not in done for m in task.needs}
        wanted = {m for m in wanted if not self.there(m)}
        wanted |= {m.parent for m in wanted if m.parent is not None}
        if self.there(member) or member not in wanted:
            return False
        if member.parent is not None and not self.there(member.parent):
            return False
        on_it = [task for task in measurements if member in task.needs]
        if rests := [task.name for task in on_it if task.name in done]:
            self.say(f"{member.name}: {rests[0]} rests on weights that are not here")
            return False
        if (self.folder / "state" / f"{member.name}.pt").exists():
            return True
        seconds = member.epochs(self.scale) * member.passes() * self.epoch
        if seconds > self.end - time.monotonic():
            self.say(f"{member.name}: would take {seconds:.0f} s, which are not left")
            return False
        finished = {task.file for task in measurements if task.name in done}
        for task in on_it:  # begun with other weights, on another machine
            if task.file not in finished:
                (self.folder / "answers" / f"{task.file}.npz").unlink(missing_ok=True)
        return True

    def hand_out(self) -> None:
        """Let weights come back: first those of a family that is not measured yet, then bases,
        which joint trainings start from."""
        if self.out is None:
            return
        finished = self.done()
        members = [m for part, m in order(self.scale) if part == "train" and self.there(m)]

        def worth(member: Member) -> tuple[bool, bool]:
            measured = f"shift {member.family}-{member.base}" in finished
            return (measured or member.role in JOINT, member.role != member.base)

        hand_out(self.folder, self.out, [m.name for m in sorted(members, key=worth)])


def photographs(scale: Scale) -> Photographs:
    """CIFAR-10: the first training images to learn, those after them to choose, the test images."""
    train, test = (load_dataset("cifar10", split=split) for split in ("train", "test"))
    after = range(scale.learned, scale.learned + scale.validation)
    return Photographs(train.take(range(scale.learned)), train.take(after), test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9, help="nothing begins after them")
    parser.add_argument("--left", type=float, default=1e9, help="that this machine is there for")
    parser.add_argument("--given", type=Path, help="a folder with weights in pieces, to take in")
    parser.add_argument("--out", type=Path, help="where weights are put in pieces")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--toy", action="store_true", help="a tiny network on few images")
    given = parser.parse_args()
    if given.given:
        take_in(given.given, given.folder)
    scale = TOY if given.toy else Scale()
    stretch = Stretch(
        given.folder, scale, photographs(scale), pick_device(given.device),
        seconds=given.seconds, left=given.left, out=given.out,
    )  # fmt: skip
    stretch.say("everything is done" if stretch.run() else "to be continued")


if __name__ == "__main__":
    main()
