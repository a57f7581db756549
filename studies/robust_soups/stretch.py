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

from stockpot.datasets.load import load_dataset
from stockpot.engine import pick_device
from stockpot.engine.interrupt import Interrupted, ask_to_stop
from stockpot.files import write_atomic

EPOCH = 5.8
"""Seconds of an epoch against one norm, before one has been timed here."""
PIECE = 15_000_000
"""Bytes of a file that comes back at most."""
SENT = 2
"""Members whose weights come back with one call: 4 files of 11 MB."""


@dataclass(frozen=True)
class Task:
    """One thing to do: its name, the members it needs, about how long it takes, and itself."""

    name: str
    needs: tuple[Member, ...]
    seconds: float
    run: Callable[[], bool]
    makes: Member | None = None


def order(scale: Scale) -> Iterator[tuple[str, Member]]:
    """Parts and the members (or families) that they are about, by what they decide.

    Each seed is trained and measured whole before the next one, so that every stretch ends with
    verdicts; then joint trainings, labels and the stronger attack; then bases of other norms.
    """
    for seed in range(scale.seeds):
        base = Member(seed, "linf", "linf")
        for role in ("linf", "l1", "l2", "nominal"):
            yield "train", Member(seed, "linf", role)
        yield from ((part, base) for part in ("choose", "decide", "shift"))
        if seed:
            yield "control", base
    for seed in range(scale.seeds):
        yield "judge", Member(seed, "linf", "linf")
    for seed in range(scale.seeds):
        for role in ("max2", "sat2"):
            yield "train", Member(seed, "linf", role)
            yield "joint", Member(seed, "linf", role)
        if seed == 0:
            first = Member(0, "linf", "linf")
            yield from (("labels", first), ("strong", first))
            yield "train", Member(0, "linf", "max3")
            yield "joint", Member(0, "linf", "max3")
    for norm in ("l2", "l1"):
        for role in (norm, *(other for other in SOUPED if other != norm)):
            yield "train", Member(0, norm, role)
        yield from ((part, Member(0, norm, norm)) for part in ("choose", "decide", "judge"))


SECONDS = {"choose": 55.0, "decide": 40.0, "judge": 85.0, "shift": 115.0, "control": 5.0,
           "joint": 13.0, "labels": 70.0, "strong": 200.0}  # fmt: skip
"""What measuring takes on an H200, estimated."""


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

    def tasks(self) -> Iterator[Task]:
        measuring, scale = self.measuring, self.scale
        for part, about in order(scale):
            if part == "train":
                needs = () if about.parent is None else (about.parent,)
                taken = about.epochs(scale) * about.passes() * self.epoch
                yield Task(f"train {about.name}", needs, taken, self.training(about), about)
                continue
            needs = tuple(Member(about.seed, about.base, role) for role in SOUPED)
            if part == "joint":
                needs = (about,)
            if part == "control":
                needs = tuple(Member(seed, "linf", "linf") for seed in range(about.seed + 1))
            run = partial(getattr(measuring, part), about)
            yield Task(f"{part} {about.name}", needs, SECONDS[part], run)

    @property
    def epoch(self) -> float:
        """Seconds of an epoch against one norm: the last one timed, or what it once was."""
        known = self.folder / "epoch.json"
        return float(json.loads(known.read_text())) if known.exists() else EPOCH

    def training(self, member: Member) -> Callable[[], bool]:
        def run() -> bool:
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
            self.hand_out()
            return True

        return run

    def done(self) -> set[str]:
        known = self.folder / "done.json"
        return set(json.loads(known.read_text())) if known.exists() else set()

    def there(self, member: Member) -> bool:
        return place_of(self.folder, member).exists()

    def run(self) -> bool:
        """Do what there is time for; whether everything is finished."""
        left = []
        for task in self.tasks():
            if task.name in self.done() or (task.makes and self.there(task.makes)):
                continue
            left.append(task.name)
            now = time.monotonic()
            if now > self.until:
                break
            if not all(map(self.there, task.needs)):
                continue
            if task.makes and task.seconds > self.end - now and not self.begun_before(task.makes):
                self.say(f"{task.name}: would take {task.seconds:.0f} s, which are not left")
                continue
            self.say(f"{task.name}: begins")
            if not task.run():
                break
            write_atomic(self.folder / "done.json", json.dumps(sorted(self.done() | {task.name})))
            self.say(f"{task.name}: done")
            left.remove(task.name)
        self.hand_out()
        return not left

    def begun_before(self, member: Member) -> bool:
        return (self.folder / "state" / f"{member.name}.pt").exists()

    def hand_out(self) -> None:
        """Put weights that have not come back yet where they are fetched, in pieces.

        Those come first that a later stretch needs: the members of a family that is not measured
        yet, then bases, which joint trainings start from.
        """
        if self.out is None:
            return
        known = self.folder / "sent.json"
        sent: list[str] = json.loads(known.read_text()) if known.exists() else []
        here = sorted(path.stem.partition(".")[0] for path in self.out.glob("*.weights.*"))
        before = set(sent) - set(here)
        finished = self.done()
        members = [m for part, m in order(self.scale) if part == "train" and self.there(m)]

        def worth(member: Member) -> tuple[bool, bool]:
            measured = f"shift {member.family}-{member.base}" in finished
            return (measured or member.role in JOINT, member.role != member.base)

        wanted = [m for m in sorted(members, key=worth) if m.name not in before][:SENT]
        for path in self.out.glob("*.weights.*"):
            if path.name.partition(".")[0] not in {m.name for m in wanted}:
                path.unlink()
        for member in wanted:
            content = place_of(self.folder, member).read_bytes()
            for number, start in enumerate(range(0, len(content), PIECE)):
                write_atomic(self.out / f"{member.name}.weights.{number}",
                             content[start : start + PIECE])  # fmt: skip
        write_atomic(known, json.dumps(sorted(before | {m.name for m in wanted})))


def take_in(given: Path, folder: Path) -> None:
    """Put pieces of weights that another machine handed out back together."""
    for first in sorted(given.glob("*.weights.0")):
        name = first.name.partition(".")[0]
        if (folder / "kept" / f"{name}.safetensors").exists():
            continue
        pieces = sorted(given.glob(f"{name}.weights.*"), key=lambda p: int(p.suffix[1:]))
        content = b"".join(piece.read_bytes() for piece in pieces)
        write_atomic(folder / "kept" / f"{name}.safetensors", content)


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
