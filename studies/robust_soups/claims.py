"""The findings of "Seasoning Model Soups", judged by the rules of plan.md.

    python studies/robust_soups/claims.py [runs/soups]

reads the answers of a run (by default those in `planned`), however far it has come, writes
claims.json and fills README.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from answers import Answers, Flags
from chosen import (
    NEIGHBOURS,
    NORMS,
    Choices,
    ask,
    cells,
    choices,
    few_labels,
    grid,
    judged_rows,
    one,
    shifts,
    top_weights,
    union,
)
from families import JOINT, SOUPED, TOY, Scale
from measured import first_of
from numpy.typing import NDArray
from rules import Finding, several, single

from stockpot.files import write_atomic
from stockpot.results.contrast import Contrast
from stockpot.results.few_seeds import Difference, Side, over_seeds
from stockpot.results.tables import fill, markdown

HERE = Path(__file__).parent
CLAIMS = {
    "F1": "no barrier: the lowest interior soup of a line is no worse than its lower end",
    "F2": "for neighbouring norms some interior soup beats the specialist",
    "F3": "MAX and SAT on (l_inf, l_1) lie above the soups",
    "F4": "the best soup under the union needs no l_2 member",
    "F4, strictly": "it is better without one",
    "F4, again": "the same of further seeds, by themselves",
    "F4, strong": "the same soups under the stronger attack: no l_2 member is needed",
    "F5": "on the line l_inf - l_2 a weight outside [0, 1] is as good for l_inf",
    "F5, strictly": "it is better",
    "F5, again": "the same of further seeds, by themselves",
    "F5, strong": "under the stronger attack it is as good",
    "F6": "the best soup of a shifted set beats the best member",
    "F6, clean": "on clean images it does not",
    "F7": "a hundred labels choose as well as five hundred",
    "F8": "the nominal weight falls as severity rises",
    "F8, pixelate": "pixelate favours l_1 over l_inf",
    "F8, JPEG": "JPEG favours l_inf over l_1",
    "F9": "one soup for all is below the output ensemble of the members",
    "F10": "bases that were trained apart do not mix",
}  # fmt: skip


class Claims:
    """Answers of a run, and the claims that they decide."""

    def __init__(self, folder: Path, scale: Scale, base: str = "linf") -> None:
        self.folder, self.scale, self.base = folder, scale, base
        done = folder / "done.json"
        self.done = set(json.loads(done.read_text())) if done.exists() else set()

    def seeds(self, part: str, role: str | None = None) -> list[int]:
        """Those for which a part is finished."""
        ends = f"-{self.base}-{role or self.base}"
        return [seed for seed in range(self.scale.seeds) if f"{part} {seed}{ends}" in self.done]

    def answers(self, seed: int, part: str) -> Answers:
        return Answers(self.folder / "answers" / f"{seed}-{self.base}-{part}.npz")

    def found(self) -> list[Finding]:
        """Every claim that something was measured for."""
        ways: list[Callable[[], list[Finding]]] = [
            self.decided, self.lines, self.joint, self.shifted, self.labels, self.control,
        ]  # fmt: skip
        order = list(CLAIMS)
        return sorted((f for way in ways for f in way()), key=lambda f: order.index(f.claim))

    def pairs(
        self, part: str, file: str = "judge", of: slice = slice(None)
    ) -> list[tuple[Choices, Answers]]:
        """What was chosen, and what it answered on test images, by seed."""
        meant = range(self.scale.seeds)[of]
        return [(choices(self.answers(seed, "choose")), self.answers(seed, file))
                for seed in self.seeds(part) if seed in meant]  # fmt: skip

    def side(self, flags: Flags, count: int | None = None) -> Side:
        return {"test": flags[: count or self.scale.judged]}

    def decided(self) -> list[Finding]:
        """F4 and F5, the same of seeds that came after the verdict, and under a stronger attack."""
        found = []
        first, further = slice(self.scale.final), slice(self.scale.final, None)
        for part, file, of, ends in (("decide", "judge", first, ("", ", strictly")),
                                     ("decide", "judge", further, (", again",)),
                                     ("strong", "strong", slice(None), (", strong",))):  # fmt: skip
            if pairs := self.pairs(part, file, of):
                side = self.side
                best = over_seeds([(side(union(a, t.without)), side(union(a, t.with_l2)))
                                 for t, a in pairs])  # fmt: skip
                line = over_seeds([(side(a[ask("linf", t.outside)]), side(a[ask("linf", t.inside)]))
                                 for t, a in pairs])  # fmt: skip
                found += [single(f"F4{end}", best) for end in ends]
                found += [single(f"F5{end}", line) for end in ends]
        return found

    def lines(self) -> list[Finding]:
        """F1 and F2."""
        pairs, side, few = self.pairs("judge"), self.side, self.scale.lines
        if not pairs:
            return []
        low = [
            over_seeds(
                [(side(a[ask(t.lowest[k][0], t.lowest[k][1])], few),
                  side(a[ask(t.lowest[k][0], t.lowest[k][2])], few)) for t, a in pairs], of=6)
            for k in range(6)
        ]  # fmt: skip
        inner = [
            over_seeds([(side(a[ask(name, t.interior[k])]), side(a[ask(name, one(name))]))
                      for t, a in pairs], of=4)
            for k, (name, _) in enumerate(NEIGHBOURS)
        ]  # fmt: skip
        return [several("F1", low, every=True), several("F2", inner, every=False)]

    def joint(self) -> list[Finding]:
        """F3."""
        norms = tuple(JOINT["max2"][1].split(","))
        seeds = set(self.seeds("judge"))
        parts = []
        for role in ("max2", "sat2"):
            runs = []
            for seed in sorted(seeds & set(self.seeds("joint", role))):
                pair = choices(self.answers(seed, "choose")).pair
                trained = union(self.answers(seed, role), (1.0,), norms)
                souped = union(self.answers(seed, "judge"), pair, norms)
                runs.append(({"test": trained}, {"test": souped}))
            if runs:
                parts.append(over_seeds(runs, of=2))
        return [several("F3", parts, every=True)] if len(parts) == 2 else []

    def shifted(self) -> list[Finding]:
        """F6, F8 and F9."""
        scale = self.scale
        seeds = [seed for seed in self.seeds("shift") if seed < scale.final]
        if not seeds:
            return []
        names = cells(scale)
        gains, clean, alone, tops = [], [], [], []
        for seed in seeds:
            kept = self.answers(seed, "shift")
            first = first_of(kept, len(grid(scale)))
            taken = shifts(first, kept, scale)
            rows = judged_rows(kept, taken.own, len(names))
            members = np.stack([kept[f"judged {m}"][c] for c, m in enumerate(taken.member)])
            gains.append((dict(zip(names[1:], rows[1:], strict=True)),
                          dict(zip(names[1:], members[1:], strict=True))))  # fmt: skip
            clean.append(({"clean": members[0]}, {"clean": rows[0]}))
            whole = kept[f"judged {taken.single}"]
            alone.append((dict(zip(names[1:], kept["ensemble"][1:], strict=True)),
                          dict(zip(names[1:], whole[1:], strict=True))))  # fmt: skip
            tops.append(top_weights(first, kept, taken.tried, scale))
        return [single("F6", over_seeds(gains)), single("F6, clean", over_seeds(clean)),
                single("F9", over_seeds(alone)), *self.severity(tops)]  # fmt: skip

    def severity(self, tops: list[NDArray[np.float64]]) -> list[Finding]:
        """F8, from weights: resamples (the images as they are come first) x cells x members."""
        names = cells(self.scale)
        mild, harsh = self.scale.severities[0], self.scale.severities[-1]
        nominal = SOUPED.index("nominal")

        def of(claim: str, value: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Finding:
            found = np.stack([value(top) for top in tops])  # seeds x resamples
            each = tuple(map(float, found[:, 0]))
            drawn = found[:, 1:].T
            chosen = np.random.default_rng(0).integers(0, len(tops), drawn.shape)
            means = np.take_along_axis(drawn, chosen, axis=1).mean(axis=1)
            low, high = np.percentile(means, [2.5, 97.5])
            whole = Contrast(float(np.mean(each)), float(low), float(high))
            return single(claim, Difference(whole, whole, each))

        def at(severity: int) -> list[int]:
            return [names.index(f"{c}:{severity}") for c in self.scale.corruptions]

        def between(cell: str, first: str, second: str) -> Callable[..., NDArray[np.float64]]:
            place, a, b = names.index(cell), SOUPED.index(first), SOUPED.index(second)
            return lambda top: top[:, place, a] - top[:, place, b]

        return [
            of("F8", lambda top: (top[:, at(mild), nominal] - top[:, at(harsh), nominal]).mean(1)),
            of("F8, pixelate", between(f"pixelate:{harsh}", "l1", "linf")),
            of("F8, JPEG", between(f"jpeg_compression:{harsh}", "linf", "l1")),
        ]

    def labels(self) -> list[Finding]:
        """F7: with a hundred labels and with five hundred, half of the images to choose on."""
        runs = []
        for seed in self.seeds("labels"):
            kept = self.answers(seed, "labels")
            table = np.stack([kept[str(soup)] for soup in range(len(grid(self.scale)))])
            few, many = (few_labels(table, share) for share in (0.2, 1.0))
            runs.append(({"test": few}, {"test": many}))
        return [single("F7", over_seeds(runs))] if runs else []

    def accuracies(self) -> list[dict[str, Any]]:
        """Chosen soups, members and joint trainings on the test images, by seed."""
        rows = []
        for seed in self.seeds("decide"):
            taken, kept = choices(self.answers(seed, "choose")), self.answers(seed, "judge")
            shown = {"best soup without l_2": (kept, taken.without),
                     "best soup with l_2": (kept, taken.with_l2)}  # fmt: skip
            if seed in self.seeds("judge"):
                shown |= {role: (kept, one(role)) for role in NORMS}
            for role in JOINT:
                if seed in self.seeds("joint", role):
                    shown[role] = self.answers(seed, role), (1.0,)
            for name, (found, soup) in shown.items():
                known = [n for n in ("clean", *NORMS) if ask(n, soup) in found]
                scores = {n: float(found[ask(n, soup)].mean()) for n in known}
                if set(NORMS) <= set(known):
                    scores["union"] = float(union(found, soup).mean())
                rows.append({"seed": seed, "model": name, "soup": list(soup), **scores})
        return rows

    def control(self) -> list[Finding]:
        """F10: the lower end less the soup halfway, for every pair of bases."""
        if self.base != "linf" or not self.seeds("control"):
            return []
        kept = Answers(self.folder / "answers" / "control.npz")
        runs = []
        for ends in kept.found.values():
            lower = ends[0] if ends[0].mean() < ends[2].mean() else ends[2]
            runs.append(({"test": lower}, {"test": ends[1]}))
        return [single("F10", over_seeds(runs))]


def as_json(found: Sequence[Finding]) -> list[dict[str, Any]]:
    return [
        {"claim": f.claim, "verdict": f.verdict,
         "parts": [{"difference": list(p.alone), "together": list(p.together), "seeds": p.each}
                   for p in f.parts]}
        for f in found
    ]  # fmt: skip


def table(found: Sequence[dict[str, Any]]) -> str:
    """The claims with what was found; in points, F8 in weights."""
    known = {row["claim"]: row for row in found}
    body = []
    for name, text in CLAIMS.items():
        row = known.get(name)
        if row is None:
            body.append([name, text, "", "", "", "not run yet"])
            continue
        weights = name.startswith("F8")
        shown = "; ".join(
            "{:+.2f} [{:+.2f}, {:+.2f}]".format(*p["difference"]) if weights
            else str(Contrast(*p["difference"])) for p in row["parts"]
        )  # fmt: skip
        factor, decimals = (1, 2) if weights else (100, 1)
        each = "; ".join(
            ", ".join(f"{factor * value:+.{decimals}f}" for value in p["seeds"])
            for p in row["parts"]
        )
        count = len(row["parts"][0]["seeds"])
        of = f"{count} pair" if name == "F10" and count == 1 else str(count)
        body.append([name, text, shown, each, of, f"**{row['verdict']}**"])
    return markdown(["finding", "claim", "difference, 95 %", "each seed", "seeds", "verdict"], body)


def accuracy_table(rows: Sequence[dict[str, Any]]) -> str:
    """The mean over seeds in percent, and the lowest and highest of them."""
    body = []
    for name in dict.fromkeys(row["model"] for row in rows):
        shown = []
        for condition in ("clean", *NORMS, "union"):
            each = [100 * r[condition] for r in rows if r["model"] == name and condition in r]
            ends = f" ({min(each):.1f} to {max(each):.1f})" if len(each) > 1 else ""
            shown.append(f"{np.mean(each):.1f}{ends}" if each else "")
        body.append([name, *shown])
    columns = ["model", "clean", "l_inf 8/255", "l_2 128/255", "l_1 12", "union"]
    return markdown(columns, body or [["not run yet", *[""] * 5]])


def from_data() -> dict[str, str]:
    """The places of README.md that claims.json fills."""
    path = HERE / "claims.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {"claims": table(found.get("claims", [])),
            "accuracies": accuracy_table(found.get("accuracies", []))}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "run", type=Path, nargs="?", default=HERE / "planned", help="what stretch.py wrote"
    )
    parser.add_argument("--toy", action="store_true", help="of a toy run: print, and fill nothing")
    given = parser.parse_args()
    run = Claims(given.run, TOY if given.toy else Scale())
    found = {"claims": as_json(run.found()), "accuracies": run.accuracies()}
    if given.toy:
        print(table(found["claims"]), accuracy_table(found["accuracies"]), sep="\n\n")
        return
    write_atomic(HERE / "claims.json", json.dumps(found, indent=1) + "\n")
    fill(HERE / "README.md", from_data())


if __name__ == "__main__":
    main()
