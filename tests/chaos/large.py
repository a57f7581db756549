"""`make chaos`: many random kills of every command on every engine, with a table in the end.

    python tests/chaos/large.py --kills 200 --seed 20 --out runs/chaos

Which command is killed, when and by which signal follows from the seed and the number of the kill.
What was found stands in `OUT/found.jsonl`; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.kills import Whole, disturbed, forget, tasks, whole
from stockpot.engine import engines

SIGNALS = [signal.SIGKILL] * 6 + [signal.SIGTERM] * 2 + [signal.SIGINT] * 2
ENGINELESS = {"fuse", "learn", "harden", "season"}
"""Commands without `--engine`: they are the same on every engine."""


def drawn(seed: int, number: int, cases: list[tuple[str, str]]) -> dict[str, Any]:
    """The kill of a number."""
    source = random.Random(f"{seed}/{number}")
    command, engine = cases[number % len(cases)]
    return {
        "number": number,
        "command": command,
        "engine": engine,
        # Half of them at a change of a file, half by the clock, up to the very end.
        "change": source.random() if source.random() < 0.5 else None,
        "share": source.uniform(0.02, 1.02),
        "signal": source.choice(SIGNALS).name,
    }


def main() -> None:
    """Kill, and say what came of it."""
    parser = argparse.ArgumentParser(description="Kill commands at random and compare the results.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/chaos"))
    parser.add_argument("--engine", action="append", help="only these; by default all")
    chosen = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    chosen.out.mkdir(parents=True, exist_ok=True)
    log = chosen.out / "found.jsonl"
    known = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    done = {one["number"] for one in known if one["seed"] == chosen.seed}
    with tempfile.TemporaryDirectory(prefix="stockpot-chaos-") as name:
        _kill(chosen, Path(name), log, done)
    _table(log, chosen.seed)


def _kill(chosen: argparse.Namespace, place: Path, log: Path, done: set[int]) -> None:
    names = sorted(chosen.engine or engines.names(), key=lambda name: name != "serial")
    by_engine = {engine: tasks(place / "given", engine) for engine in names}
    cases = [
        (command, engine)
        for engine in names
        for command in by_engine[engine]
        if engine == names[0] or command not in ENGINELESS
    ]
    undisturbed: dict[tuple[str, str], Whole] = {}
    for number in range(chosen.kills):
        if number in done:
            continue
        kill = drawn(chosen.seed, number, cases)
        case = kill["command"], kill["engine"]
        task = by_engine[case[1]][case[0]]
        if case not in undisturbed:
            undisturbed[case] = whole(task, place / f"whole-{'-'.join(case)}")
        expected = undisturbed[case]
        folder = place / f"kill-{number}"
        change = kill["change"] and 1 + int(kill["change"] * expected.changes)
        which = {"change": change} if change else {"number": signal.Signals[kill["signal"]]}
        tried = disturbed(task, folder, expected, share=kill["share"], **which)
        forget(folder)
        found = {"seed": chosen.seed, **kill, "code": tried.code, "wrong": tried.wrong}
        with log.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(found) + "\n")
        when = f"change {change}" if change else f"{kill['share']:.2f} {kill['signal']}"
        print(number, *case, when, *(tried.wrong or ["as undisturbed"]), flush=True)


def _table(log: Path, seed: int) -> None:
    found = [json.loads(line) for line in log.read_text().splitlines()]
    found = [one for one in found if one["seed"] == seed]
    kills = Counter((one["command"], one["engine"]) for one in found)
    wrong = Counter((one["command"], one["engine"]) for one in found if one["wrong"])
    print(f"\n{'command':10}{'engine':12}{'kills':>6}{'wrong':>6}")
    for case in sorted(kills):
        print(f"{case[0]:10}{case[1]:12}{kills[case]:6}{wrong[case]:6}")
    print(f"{'all':22}{sum(kills.values()):6}{sum(wrong.values()):6}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
