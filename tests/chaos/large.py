"""`make chaos`: many random kills of every command on every engine, with a table in the end.

    python tests/chaos/large.py --kills 200 --seed 20 --out runs/chaos

Which command is killed, when, by which signal, or which of its workers, follows from the seed and
the number of the kill. Commands are shared out among lanes that go side by side. What was found
stands in `OUT/found.jsonl`; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.killed_commands import Task, elsewhere, tasks
from chaos.kills import Whole, disturbed, forget, whole

SIGNALS = [signal.SIGKILL] * 6 + [signal.SIGTERM] * 2 + [signal.SIGINT] * 2

BUSY = "timed out during startup"
"""What Ray says when its processes take more than half a minute; such a kill is tried again."""


def drawn(seed: int, number: int, cases: list[Task]) -> dict[str, Any]:
    """The kill of a number."""
    source = random.Random(f"{seed}/{number}")
    task = cases[number % len(cases)]
    here = task.engine == "serial"
    # Half of them at a change of a file, half by the clock, up to the very end; elsewhere workers
    # make the changes, and are killed themselves as often as the command is.
    other = source.random() < 0.5
    return {
        "number": number,
        "command": task.name,
        "engine": task.engine,
        "change": source.random() if here and other else None,
        "share": source.uniform(0.02, 1.02),
        "signal": source.choice(SIGNALS).name,
        "worker": source.randrange(1000) if not here and other else None,
    }


def main() -> None:
    """Kill, and say what came of it."""
    parser = argparse.ArgumentParser(description="Kill commands at random and compare the results.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/chaos"))
    parser.add_argument("--engine", action="append", help="only these; by default all")
    parser.add_argument("--lanes", type=int, default=2, help="how many go side by side")
    parser.add_argument("--lane", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if chosen.lane is not None:
        _kill(chosen)
        return
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stockpot-chaos-") as place:
        tasks(Path(place) / "given")
        words = [sys.executable, __file__, *sys.argv[1:], "--place", place, "--lane"]
        lanes = [subprocess.Popen([*words, str(lane)]) for lane in range(chosen.lanes)]
        codes = [lane.wait() for lane in lanes]
    wrong = _table(chosen.out / "found.jsonl", chosen.seed)
    sys.exit(1 if wrong or any(codes) else 0)


def _kill(chosen: argparse.Namespace) -> None:
    """The kills of one lane; a lane has commands of its own, so that each runs undisturbed once."""
    place, log = chosen.place, chosen.out / "found.jsonl"
    here = tasks(place / "given", make=False)
    cases = [*here.values(), *elsewhere(place / "given", here)]
    cases = [task for task in cases if task.engine in (chosen.engine or [task.engine])]
    done = {one["number"] for one in _found(log, chosen.seed)}
    undisturbed: dict[int, Whole] = {}
    for number in range(chosen.kills):
        at = number % len(cases)
        if number in done or at % chosen.lanes != chosen.lane:
            continue
        kill, task = drawn(chosen.seed, number, cases), cases[at]
        begun = time.monotonic()
        if at not in undisturbed:
            print(number, task.name, task.engine, "undisturbed", flush=True)
            try:
                undisturbed[at] = whole(task, place / f"whole-{number}")
            except AssertionError as problem:
                if BUSY not in str(problem):
                    raise
                continue
        expected = undisturbed[at]
        folder = place / f"kill-{number}"
        change = kill["change"] and 1 + int(kill["change"] * expected.changes)
        which: dict[str, Any] = {"number": signal.Signals[kill["signal"]]}
        when = f"{kill['share']:.2f} {kill['signal']}"
        if change:
            which, when = {"change": change}, f"change {change}"
        elif kill["worker"] is not None:
            which, when = {"worker": kill["worker"]}, f"{kill['share']:.2f} a worker"
        tried = disturbed(task, folder, expected, share=kill["share"], **which)
        forget(folder)
        if any(BUSY in one for one in tried.wrong):
            print(number, task.name, task.engine, "the machine is too busy for Ray", flush=True)
            continue
        seconds = round(time.monotonic() - begun, 1)
        found = {"seed": chosen.seed, **kill, "code": tried.code, "hit": tried.hit}
        with log.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(found | {"seconds": seconds, "wrong": tried.wrong}) + "\n")
        good = "as undisturbed" if tried.hit else "had ended"
        print(number, task.name, task.engine, when, *(tried.wrong or [good]), flush=True)


def _found(log: Path, seed: int) -> list[dict[str, Any]]:
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [one for one in map(json.loads, lines) if one["seed"] == seed]


def _table(log: Path, seed: int) -> int:
    """Kills by command and engine: of the command, of its workers, too late, and with a fault."""
    columns = ("itself", "worker", "too late", "wrong", "seconds")
    counts: dict[tuple[str, str], Counter[str]] = {("~", "all"): Counter()}
    for one in _found(log, seed):
        kind = "too late" if not one["hit"] else "worker" if one["worker"] is not None else "itself"
        row = {kind: 1, "wrong": int(bool(one["wrong"])), "seconds": one["seconds"]}
        for case in ((one["engine"], one["command"]), ("~", "all")):
            counts.setdefault(case, Counter()).update(row)
    print(f"\n{'command':10}{'engine':12}" + "".join(f"{name:>10}" for name in columns))
    for engine, command in sorted(counts):
        row = counts[engine, command]
        shown = "".join(f"{row[name]:10.0f}" for name in columns)
        print(f"{command:10}{engine.strip('~'):12}{shown}")
    return int(counts["~", "all"]["wrong"])


if __name__ == "__main__":
    main()
