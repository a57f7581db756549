"""How often the gate is wrong, and how many images it needs: 200 checks of each kind.

    python tests/gate/error_rates.py             # from recorded answers, some seconds
    python tests/gate/error_rates.py --record    # train and measure the models again, some minutes

Three real networks: `icons-resnet`, fine-tuned for two epochs (the baseline); the same with another
training seed; and the baseline fine-tuned on for three epochs at a learning rate of 0.001: it loses
about two points under noise (gaussian and shot, severities 1 to 3) on the 1,447 test icons.
Their answers to each icon and copy are recorded in `noise_outcomes.json`, beside this file.

Each check draws icons anew, with replacement, so that what is true of all of them is what is true,
and the pairing is real: what one network gets wrong under noise, its sibling mostly does too. Both
ways of deciding are tried: on a fixed number of images, and in growing blocks that stop early. The
rule with its limit exactly at the true difference is the worst case for both kinds of error.
"""

from __future__ import annotations

import argparse
import base64
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stockpot.gate.blocks import block_sizes
from stockpot.gate.bounds import difference_bounds
from stockpot.gate.outcome import Status, status
from stockpot.gate.rule import Rule, parse_rule
from stockpot.gate.tracked import Tracked

RECORDED = Path(__file__).with_name("noise_outcomes.json")
RUNS = 200
Values = NDArray[np.float64]


def recorded(path: Path = RECORDED) -> dict[str, Values]:
    """For each network and icon the share of noisy copies that are right."""
    known = json.loads(path.read_text(encoding="utf-8"))
    found = {}
    for name, text in known["right"].items():
        bits = np.unpackbits(np.frombuffer(base64.b64decode(text), np.uint8))
        table = bits[: known["copies"] * known["images"]].reshape(known["copies"], -1)
        found[name] = table.mean(axis=0)
    return found


def rule_with(margin: float, confidence: float = 0.95) -> Rule:
    """Not worse than the baseline by more than this."""
    text = f"corruption: not worse than baseline by {100 * margin:.9f} points"
    return parse_rule(text, ["corruption"], confidence)


def sequential(
    rule: Rule, mine: Values, theirs: Values, most: int, seed: int
) -> tuple[Status, int]:
    """One check in growing blocks; what it says and how many images it took."""
    drawn = np.random.default_rng(seed).integers(0, len(mine), most)
    one, start = Tracked(rule, most), 0
    for end in block_sizes(most):
        rows = drawn[start:end]
        one.add("", mine[rows], theirs[rows], None)
        start = end
        if one.look(last=end >= most) != "not decided":
            break
    return one.status, start


def fixed(rule: Rule, mine: Values, theirs: Values, n: int, seed: int) -> Status:
    """One check on so many images."""
    rows = np.random.default_rng(seed).integers(0, len(mine), n)
    low, high = difference_bounds(mine[rows] - theirs[rows], rule.alpha, None)
    return status(low, high, -rule.amount)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--runs", type=int, default=RUNS)
    asked = parser.parse_args()
    if asked.record:
        record()
    right = recorded()
    base = right["baseline"]
    print("| model | true difference | limit | way | images | holds | fails | not decided | "
          "median images |\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    for name in ("other seed", "planted"):
        mine = right[name]
        true = float((mine - base).mean())
        limits = [("1 point", 0.01)]
        limits += [("at the truth", -true)] if true < 0 else []
        for label, margin in limits:
            rule = rule_with(margin)
            for most in (1447, 10_000):
                told = [fixed(rule, mine, base, most, seed) for seed in range(asked.runs)]
                _print(name, true, label, "fixed", most, told, [most] * asked.runs)
                both = [sequential(rule, mine, base, most, seed) for seed in range(asked.runs)]
                _print(name, true, label, "blocks", most, [each[0] for each in both],
                       [each[1] for each in both])  # fmt: skip


def _print(
    name: str, true: float, label: str, way: str, most: int, told: list[Status], used: list[int]
) -> None:
    shares = [f"{100 * told.count(word) / len(told):.1f} %" for word in
              ("holds", "fails", "not decided")]  # type: ignore[arg-type]  # fmt: skip
    cells = [name, f"{100 * true:+.2f} points", label, way, f"{most:,}", *shares]
    print(f"| {' | '.join(cells)} | {int(np.median(used)):,} |")


def record() -> None:
    """Train the three networks, measure them, and write down what they got right."""
    import tempfile

    import stockpot

    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        data = stockpot.load_dataset("icons", split="train")
        tuned = {"epochs": 2, "lr": 0.0003, "label_smoothing": 0.1}
        stockpot.harden("nominal", "icons-resnet", data, out=here / "a", seed=0, **tuned)
        stockpot.harden("nominal", "icons-resnet", data, out=here / "b", seed=1, **tuned)
        stockpot.harden("nominal", here / "a", data, out=here / "c", epochs=3, lr=0.001, seed=2)
        cells = stockpot.measure(
            {"baseline": here / "a", "other seed": here / "b", "planted": here / "c"},
            {"corruption": {"corruptions": "gaussian_noise,shot_noise",
                            "severities": "1-3"}},
            data="icons",
        )  # fmt: skip
    write(cells)


def write(cells: list, path: Path = RECORDED) -> None:  # type: ignore[type-arg]
    """The recorded answers of these results."""
    right, copies = {}, [name for name in cells[0].outcomes if ":" in name]
    for cell in cells:
        table = np.stack([cell.outcome(name) for name in copies])
        right[cell.key.model] = base64.b64encode(np.packbits(table).tobytes()).decode("ascii")
    facts = cells[0].data
    known = {"images": facts.n, "copies": len(copies), "conditions": copies, "data": "icons:test",
             "fingerprint": facts.fingerprint, "right": right}  # fmt: skip
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
