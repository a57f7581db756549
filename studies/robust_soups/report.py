"""Tables and figures of the study, from the files that `measure.py` wrote.

python studies/robust_soups/report.py runs/study --family quarter
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import findings
import numpy as np
import shifts
from tables import OWN, THREATS, Attacked, Shifted, read_attacked, read_shifted, share, shown

from stockpot.season.plots.composition import composition
from stockpot.season.plots.labels_needed import labels_needed
from stockpot.season.plots.lines import along_line, trade_off
from stockpot.season.plots.triangle import triangle


def members_table(attacked: dict[str, Attacked]) -> list[str]:
    """Clean and robust accuracy of every member."""
    lines = [
        "| model | clean | l_inf 8/255 | l_2 128/255 | l_1 12 | union |",
        "|---|---|---|---|---|---|",
    ]
    for part in attacked.values():
        for row, weights in enumerate(part.weights):
            if weights.max() < 1 - 1e-9:
                continue
            name = part.members[int(weights.argmax())]
            cells = [shown(share(part.matrices[c].correct[row])) for c in
                     ("clean", *THREATS, "union")]  # fmt: skip
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def figures_of_soups(soups: Attacked, joint: dict[str, Attacked], out: Path, family: str) -> None:
    """Trade-off curves, triangles and extrapolation lines."""
    robust = {name: soups.matrices[name] for name in (*THREATS, "union", "clean")}
    for first, second in ((0, 1), (0, 2), (1, 2), (0, 3)):
        a, b = soups.members[first], soups.members[second]
        if len(soups.line(first, second)) < 3:
            continue
        text = along_line(
            robust, soups.line(first, second, -0.4, 1.4), second,
            title=f"{a} to {b}", across=f"weight of {b}",
        )  # fmt: skip
        (out / f"{family}-line-{a}-{b}.svg").write_text(text)
        others = {
            name.upper(): tuple(float(model.matrices[OWN[role]].accuracy()[0]) for role in (a, b))
            for name, model in joint.items()
        }
        text = trade_off(
            soups.matrices[OWN[a]], soups.matrices[OWN[b]],
            {f"{a} - {b}": soups.line(first, second)}, names=(OWN[a], OWN[b]),
            title=f"trade-off between {a} and {b}",
            others=others if (a, b) == ("linf", "l1") else None,
        )  # fmt: skip
        (out / f"{family}-tradeoff-{a}-{b}.svg").write_text(text)
    rows = [
        row for row, weights in enumerate(soups.weights)
        if (weights >= -1e-9).all() and abs(weights[3]) < 1e-9
        and np.allclose(np.round(weights * 5), weights * 5, atol=1e-6)
    ]  # fmt: skip
    text = triangle(
        {name: robust[name] for name in (*THREATS, "union")}, rows, (0, 1, 2), soups.members[:3],
        title=f"{len(rows)} convex soups of three members, n = {soups.n}",
    )  # fmt: skip
    (out / f"{family}-triangle.svg").write_text(text)


def figures_of_shift(shifted: Shifted, out: Path, family: str) -> None:
    """What the best soups are made of, and how many labels their choice needs."""
    cells = {name: shifted.cells[name] for name in shifts.cells_of(shifted)}
    chosen = {"clean": shifted.cells["clean"], **cells}
    text = composition(
        chosen,
        shifted.facts["members"],
        title=f"the five best of {len(chosen['clean'].weights)} soups",
    )
    (out / f"{family}-composition.svg").write_text(text)
    n = shifted.facts["n"]
    strongest = {name: cell for name, cell in cells.items() if name.endswith(":5")} or cells
    text = labels_needed(
        strongest, held_out=n // 2, title="held-out accuracy",
        shots=shifts.numbers_of_labels(n),
    )  # fmt: skip
    (out / f"{family}-labels-needed.svg").write_text(text)


def selection_lines(rows: list[dict[str, Any]]) -> list[str]:
    """The table of ways to choose: mean over seeds, standard deviation in brackets."""
    kinds = [k for k in ("best member", "ensemble", "source", "agreement", "entropy", "atc",
                         "10-shot", "100-shot", "oracle") if k in rows[0]]  # fmt: skip
    lines = ["| cell | " + " | ".join(kinds) + " |", "|---" * (len(kinds) + 1) + "|"]
    for row in rows:
        cells = [f"{np.mean(row[k]):.1f} ({np.std(row[k]):.1f})" for k in kinds if k in row]
        lines.append(f"| {row['cell']} | " + " | ".join(cells) + " |")
    means = [f"**{np.mean([np.mean(r[k]) for r in rows if k in r]):.1f}**" for k in kinds]
    return [*lines, "| **mean** | " + " | ".join(means) + " |"]


def main() -> None:
    """Write `FAMILY.json` and `FAMILY.md` under `results/`, and the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--family", default="quarter")
    parser.add_argument("--as", dest="label", help="What the written files are called.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args()
    family, out, results = given.family, given.out / "figures", given.out / "results"
    label = given.label or family
    for folder in (out, results):
        folder.mkdir(parents=True, exist_ok=True)
    parts = {name: read_attacked(given.data / f"{family}-{name}.npz")
             for name in ("members", "max", "sat", "control", "soups")}  # fmt: skip
    there = {name: part for name, part in parts.items() if part is not None}
    joint = {name: there[name] for name in ("max", "sat") if name in there}
    found: dict[str, Any] = {}
    text = [f"# {label}", "", *members_table({k: v for k, v in there.items() if k != "soups"})]
    if soups := there.get("soups"):
        found |= {
            "F1": findings.smooth(soups),
            "F2": findings.interior_beats_specialist(soups),
            "F4": findings.best_union(soups),
            "F5": findings.extrapolation(soups),
        }
        if joint:
            found["F3"] = findings.joint_training(soups, joint)
        figures_of_soups(soups, joint, out, label)
    if "control" in there:
        found["F10"] = findings.control(there["control"])
    renewed = given.data / f"{family}-control-renewed.json"
    if renewed.exists():
        found["F10 with statistics estimated anew"] = {"rows": json.loads(renewed.read_text())}
    if shifted := read_shifted(given.data / f"{family}-shift.npz"):
        found |= {
            "F6": shifts.soups_beat_members(shifted),
            "F7": shifts.labels(shifted),
            "F8": shifts.severity(shifted),
            "F9": shifts.single_against_ensemble(shifted),
            "racing": shifts.racing(shifted),
            "selection": shifts.selection_table(shifted),
        }
        text += ["", *selection_lines(found["selection"])]
        figures_of_shift(shifted, out, label)
    (results / f"{label}.json").write_text(
        json.dumps(found, indent=1, default=lambda v: v.item()) + "\n"
    )
    (results / f"{label}.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))
    for name in sorted(found):
        brief = (
            {k: v for k, v in found[name].items() if k != "rows"}
            if isinstance(found[name], dict)
            else ""
        )
        print(name, json.dumps(brief, default=lambda v: v.item()))


if __name__ == "__main__":
    main()
