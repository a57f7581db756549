"""Does each finding of "Seasoning Model Soups" hold here? F1 to F5 and F10: soups under attack."""

from __future__ import annotations

from typing import Any

import numpy as np
from tables import OWN, THREATS, Attacked, difference, mixture, share

Finding = dict[str, Any]


def smooth(soups: Attacked) -> Finding:
    """F1: along a line no interior soup falls below the worse end."""
    rows = []
    for first, second in ((0, 1), (0, 2), (1, 2)):
        line = soups.line(first, second)
        for role in (soups.members[first], soups.members[second]):
            scores = soups.matrices[OWN[role]].accuracy()[line]
            dip = 100 * (scores[1:-1].min() - min(scores[0], scores[-1]))
            steps = np.diff(scores) * (1 if scores[-1] > scores[0] else -1)
            rows.append(
                {
                    "pair": f"{soups.members[first]}-{soups.members[second]}",
                    "threat": OWN[role],
                    "lowest interior minus lower end": dip,
                    "largest step against the trend": 100 * max(0.0, float(-steps.min())),
                }
            )
    lowest = min(row["lowest interior minus lower end"] for row in rows)
    return {"holds": lowest > -2.0, "lowest dip (points)": lowest, "rows": rows}


def interior_beats_specialist(soups: Attacked) -> Finding:
    """F2: for neighbouring norms some interior soup beats the specialist at its own threat."""
    rows = []
    for specialist, other in ((1, 0), (1, 2), (0, 1), (2, 1)):
        name = soups.members[specialist]
        matrix = soups.matrices[OWN[name]]
        line = soups.line(specialist, other)
        inner = line[1:-1]
        # Chosen on the first half of the images and compared on the second: no winner's curse.
        half = soups.n // 2
        best = inner[int(matrix.correct[inner][:, :half].mean(axis=1).argmax())]
        gap = difference(matrix.correct[best, half:], matrix.correct[line[0], half:])
        rows.append(
            {
                "specialist": name,
                "soup": mixture(soups.members, soups.weights[best]),
                "gain over the specialist": gap,
            }
        )
    return {"holds": any(row["gain over the specialist"]["low"] > 0 for row in rows), "rows": rows}


def joint_training(soups: Attacked, joint: dict[str, Attacked]) -> Finding:
    """F3: MAX and SAT on (l_inf, l_1) lie above the soups' front."""
    rows = []
    line = soups.line(0, 2)
    linf, l1 = (soups.matrices[THREATS[index]].accuracy()[line] for index in (0, 2))
    for name, model in joint.items():
        x, y = (float(model.matrices[THREATS[i]].accuracy()[0]) for i in (0, 2))
        # The l_1 accuracy of the front at the same l_inf accuracy, by linear interpolation.
        order = np.argsort(linf)
        front = float(np.interp(x, linf[order], l1[order]))
        both = np.logical_and(*(soups.matrices[THREATS[i]].correct[line] for i in (0, 2)))
        best = int(both.mean(axis=1).argmax())
        own = np.logical_and(*(model.matrices[THREATS[i]].correct[0] for i in (0, 2)))
        rows.append(
            {
                "model": name,
                "linf": share(model.matrices[THREATS[0]].correct[0]),
                "l1": share(model.matrices[THREATS[2]].correct[0]),
                "l1 above the front (points)": 100 * (y - front),
                "union(linf, l1) minus the best soup's": difference(own, both[best]),
            }
        )
    gaps = [row["union(linf, l1) minus the best soup's"] for row in rows]
    return {"holds": bool(gaps) and all(gap["value"] > 0 for gap in gaps), "rows": rows}


def best_union(soups: Attacked) -> Finding:
    """F4: the best soup under the union uses only the l_inf and l_1 members."""
    convex = [
        row
        for row in range(len(soups.weights))
        if (soups.weights[row] >= -1e-9).all() and abs(soups.weights[row][3]) < 1e-9
    ]
    grid = [row for row in convex if np.allclose(soups.weights[row] * 5 % 1, 0, atol=1e-6)]
    union = soups.matrices["union"]
    order = sorted(grid, key=lambda row: -union.correct[row].mean())
    members = [soups.row(*(float(i == m) for i in range(4))) for m in range(3)]
    rows = [
        {"soup": mixture(soups.members, soups.weights[row]), "union": share(union.correct[row])}
        for row in order[:5]
    ]
    best_member = max(members, key=lambda row: union.correct[row].mean())
    return {
        "holds": abs(soups.weights[order[0]][1]) < 1e-9,
        "best minus best member": difference(union.correct[order[0]], union.correct[best_member]),
        "rows": rows,
    }


def extrapolation(soups: Attacked) -> Finding:
    """F5: some weight outside [0, 1] is at least as good for some score."""
    rows = []
    half = soups.n // 2
    for first, second in ((0, 1), (0, 2), (1, 2), (0, 3)):
        inside = soups.line(first, second)
        everything = soups.line(first, second, -0.4, 1.4)
        outside = [row for row in everything if row not in inside]
        for condition in ("clean", *THREATS, "union"):
            matrix = soups.matrices[condition]
            seen = matrix.correct[:, :half].mean(axis=1)
            a = max(outside, key=lambda row: seen[row]) if outside else None
            b = max(inside, key=lambda row: seen[row])
            if a is None:
                continue
            rows.append(
                {
                    "pair": f"{soups.members[first]}-{soups.members[second]}",
                    "score": condition,
                    "outside": mixture(soups.members, soups.weights[a]),
                    "inside": mixture(soups.members, soups.weights[b]),
                    "outside minus inside": difference(
                        matrix.correct[a, half:], matrix.correct[b, half:]
                    ),
                }
            )
    gains = [row["outside minus inside"]["value"] for row in rows]
    return {"holds": bool(gains) and max(gains) >= 0, "rows": rows}


def control(line: Attacked) -> Finding:
    """F10: independently trained members do not mix."""
    clean, robust = line.matrices["clean"], line.matrices[THREATS[0]]
    rows = [
        {
            "weight of the other": float(weights[1]),
            "clean": share(clean.correct[row]),
            "linf": share(robust.correct[row]),
        }
        for row, weights in enumerate(line.weights)
    ]
    ends = min(clean.accuracy()[0], clean.accuracy()[-1])
    barrier = 100 * (ends - clean.accuracy()[1:-1].min())
    return {"holds": barrier > 10, "barrier in clean accuracy (points)": barrier, "rows": rows}
