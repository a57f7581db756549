"""Tables and verdicts of the study of real networks, from the answers that `study.py` wrote.

    python studies/real_networks/tables.py FOLDER  # or none, to fill README.md alone

Writes published.csv (what only the published answers tell) beside this file and fills README.md
from it and from what `study.py` wrote there. FOLDER holds the published answers, which are not ours
to copy: `texture-vs-shape`, a clone of rgeirhos/texture-vs-shape, and `resnet50.csv`, which
bethgelab/model-vs-human had as raw-data/cue-conflict/cue-conflict_resnet50_session-1.csv at commit
4f948e9. The verdicts follow plan.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import defences
import helped
import kept
import moved
import numpy as np
from numpy.typing import NDArray
from rules import LARGER, NAMES, Drawn, Floats, each_above, each_within, listed, plain
from study import CROPPED, NETWORKS, RIGHT, THIRD, WRONG

from stockpot.corrupt import BENCHMARK
from stockpot.files import write_atomic
from stockpot.measure.mce import ALEXNET, ALEXNET_CLEAN
from stockpot.results.contrast import Contrast
from stockpot.results.resamples import RESAMPLES, image_counts, resampled_means
from stockpot.results.statistics import share_interval
from stockpot.results.tables import csv_text, fill, markdown, percent, read_csv

HERE = Path(__file__).parent
TOP1 = {"mobilenet_v2": 0.719, "resnet50": 0.749, "lite0": 0.751, "lite1": 0.767, "lite2": 0.776}
"""As published, on ImageNet's validation pictures."""
RELATIVE_MCE = 1.063
"""Of torchvision's ResNet-50, from RobustBench's rows."""
RUNS = {
    "corruption": (0, THIRD),
    "attacked": (0, 1, THIRD),
    "defended": (defences.FIRST.start, defences.SECOND.start, defences.THIRD.start),
    "dynamic": (0, 1),
}
"""Rounds with which runs begin; the last that there is is judged, those before are its pilots."""
Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]


class Cues:
    """Pictures of two cues, and how often each is drawn when shapes and textures are drawn anew."""

    def __init__(self, names: Sequence[str]) -> None:
        parts = [re.fullmatch(r"(([a-z]+)\d+)-(([a-z]+)\d+)", name) for name in names]
        found = np.array([part.groups() for part in parts if part is not None])
        self.shape, self.texture = found[:, 1], found[:, 3]
        self.conflict = self.shape != self.texture
        shapes, textures = (
            np.concatenate(list(image_counts(len(names), seed=seed, groups=sources)))
            for seed, sources in enumerate((found[:, 0], found[:, 2]))
        )
        self.weights: Floats = shapes.astype(np.float64) * textures

    def bias(self, answers: NDArray[np.str_]) -> Drawn:
        """Of the decisions for one of two different cues, the share for shape."""
        by_shape = self.conflict & (answers == self.shape)
        decided = by_shape | (self.conflict & (answers == self.texture))
        drawn = (self.weights @ by_shape) / (self.weights @ decided)
        return Drawn(float(by_shape.sum() / decided.sum()), drawn)

    def share(self, flags: NDArray[np.bool_]) -> Drawn:
        """The share of all pictures of which something is so."""
        return Drawn(float(flags.mean()), (self.weights @ flags) / self.weights.sum(axis=1))


def mean_of(found: Sequence[Drawn]) -> Drawn:
    return Drawn(
        float(np.mean([one.value for one in found])), np.mean([one.draws for one in found], axis=0)
    )


def cues_of(rows: Sequence[Row]) -> tuple[Cues, dict[str, NDArray[np.str_]]]:
    """The pictures, and the answers of each network."""
    answers = {key: np.array([row[key] for row in rows]) for key in rows[0] if key != "picture"}
    return Cues([row["picture"] for row in rows]), answers


def read_published(folder: Path, pictures: Sequence[str]) -> dict[str, NDArray[np.str_]]:
    """Answers of networks and people to the same pictures, in the same order."""
    raw = folder / "texture-vs-shape/raw-data"
    start = "style-transfer-512-nomask-experiment"
    files = {"resnet50": folder / "resnet50.csv"}
    files |= {f"paper {name}": raw / f"{start}-trained-CNNs/{start}_{name}_session-1.csv"
              for name in ("resnet50", "resnet101", "resnet152")}  # fmt: skip
    files |= {f"person {n}": raw / f"{start}/{start}_subject-{n:02}_session_1.csv"
              for n in range(1, 11)}  # fmt: skip
    found = {}
    for name, file in files.items():
        known = {
            row["imagename"].rpartition("_")[2].removesuffix(".png"): row["object_response"]
            for row in read_csv(file)
        }
        found[name] = np.array([known[picture] for picture in pictures])
    return found


def compared(rows: Sequence[Row], published: Mapping[str, NDArray[np.str_]]) -> list[Row]:
    """What the published answers tell beside ours; a verdict where plan.md has a claim."""
    cues, answers = cues_of(rows)
    theirs = published["resnet50"]
    people = mean_of([cues.bias(a) for name, a in published.items() if name.startswith("person")])
    less = [people - cues.bias(answers[name]) for name in NETWORKS]
    three = cues.bias(answers["resnet50"]) - cues.bias(theirs)
    own = cues.share(answers["resnet50"] == theirs)
    others = [cues.share(published[f"paper resnet{n}"] == theirs) for n in (101, 152)]
    four = own - mean_of(others)
    named: list[tuple[str, Drawn, str]] = [
        ("people", people, ""),
        ("published resnet50", cues.bias(theirs), ""),
        *((name, cues.bias(a), "") for name, a in published.items() if name.startswith("paper")),
        *((f"people less {name}", one, each_above(less, 0.5))
          for name, one in zip(NETWORKS, less, strict=True)),
        ("resnet50 less published", three, each_within([three], 0.05)),
        ("answers of resnet50", own, ""),
        ("answers of resnet101", others[0], ""), ("answers of resnet152", others[1], ""),
        ("answers less others", four, each_above([four], -0.05)),
        *((f"answers of {name}", cues.share(answers[name] == theirs), "")
          for name in NETWORKS if name != "resnet50"),
    ]  # fmt: skip
    return [
        dict(zip(("what", "value", "low", "high", "verdict"), (
            what, *(round(end, 4) for end in found.interval()), said), strict=True))
        for what, found, said in named
    ]  # fmt: skip


def corruption_of(rows: Sequence[Row]) -> dict[str, tuple[Drawn, Drawn]]:
    """mCE and relative mCE of each network, over AlexNet's; pictures of a severity drawn anew."""
    errors = np.array([sum(ALEXNET[name]) for name in BENCHMARK])
    lost = errors - 5 * ALEXNET_CLEAN
    parts = []
    for severity in range(1, 6):
        own = [row for row in rows if row["severity"] == severity]
        columns = []
        for name in NETWORKS:
            wrong = np.array([[mark == WRONG for mark in row[name]] for row in own], np.float64)
            before, after = wrong[:, :1], wrong[:, 1:]
            columns += [(after / errors).mean(axis=1), ((after - before) / lost).mean(axis=1)]
        parts.append(np.stack(columns, axis=1))
    values = np.sum([part.mean(axis=0) for part in parts], axis=0)
    draws = np.sum([resampled_means(part, seed=seed, resamples=RESAMPLES)
                    for seed, part in enumerate(parts)], axis=0)  # fmt: skip
    found = [Drawn(float(value), column) for value, column in zip(values, draws.T, strict=True)]
    return {name: (found[2 * n], found[2 * n + 1]) for n, name in enumerate(NETWORKS)}


def accuracy_of(rows: Sequence[Row]) -> dict[str, Drawn]:
    """Accuracy of each network on the pictures as they are."""
    right = np.array([[row[name] == RIGHT for name in NETWORKS] for row in rows], np.float64)
    draws = resampled_means(right, seed=0, resamples=RESAMPLES)
    return {name: Drawn(float(right[:, n].mean()), draws[:, n]) for n, name in enumerate(NETWORKS)}


def claims(data: Tables) -> list[tuple[str, str, str]]:
    """Claim, statistic and verdict."""
    cues, answers = cues_of(data["cue"])
    bias = {name: cues.bias(answer) for name, answer in answers.items()}
    told = {row["what"]: row for row in data["published"]}
    right = accuracy_of(data["clean"])
    below = [Drawn(0.5 - bias[n].value, 0.5 - bias[n].draws) for n in NETWORKS]
    crops = [bias[name] - bias[f"{name}-cropped"] for name in CROPPED]
    lite = bias["lite2"] - bias["lite0"]
    steps = [right[b] - right[a] for a, b in pairwise(NETWORKS)]
    above = [right[name] - TOP1[name] for name in NETWORKS]
    people = [told[f"people less {name}"] for name in NETWORKS]
    full = [NAMES[name] for name in NETWORKS]
    rises = [f"{NAMES[b]} less {NAMES[a]}" for a, b in pairwise(NETWORKS)]
    return [
        ("1 real networks decide by texture", listed(full, [bias[n] for n in NETWORKS], plain),
         each_above(below, 0)),
        ("2 people decide by shape", "; ".join(f"{a} {ends(b)}" for a, b in
                                               zip(full, people, strict=True)),
         people[0]["verdict"]),
        ("3 ResNet-50 has the published shape bias", ends(told["resnet50 less published"]),
         told["resnet50 less published"]["verdict"]),
        ("4 ResNet-50 answers as the published one does", ends(told["answers less others"]),
         told["answers less others"]["verdict"]),
        ("5 a crop does not matter", listed([NAMES[name] for name in CROPPED], crops),
         each_within(crops, 0.05)),
        ("6 the larger EfficientNet-Lite decides more by shape", str(lite.interval()),
         each_above([lite], 0)),
        ("7 accuracy has the published order", listed(rises, steps), each_above(steps, 0)),
        ("8 the pictures are easier than validation pictures", listed(full, above),
         each_above(above, 0.05)),
        *corruption_claims(judged(data, "corruption")),
        *kept.claims(judged(data, "attacked"), data["corruption"]),
        *helped.claims(judged(data, "defended")),
        *moved.claims(judged(data, "dynamic"), data["corruption"]),
    ]  # fmt: skip


def corruption_claims(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Claims 9 to 11."""
    hurt = corruption_of(rows)
    errors, relative = ([hurt[a][n] - hurt[b][n] for a, b in LARGER] for n in (0, 1))
    published = hurt["resnet50"][1] - RELATIVE_MCE
    pairs = [f"{NAMES[a]} less {NAMES[b]}" for a, b in LARGER]
    return [
        ("9 the better network has the smaller mCE", listed(pairs, errors), each_above(errors, 0)),
        ("10 and the smaller relative mCE", listed(pairs, relative), each_above(relative, 0)),
        ("11 ResNet-50 has the published relative mCE", str(published.interval()),
         each_within([published], 0.15)),
    ]  # fmt: skip


def runs_of(data: Tables, name: str) -> list[list[Row]]:
    """Answers of each run that there is."""
    ends = *RUNS[name][1:], np.inf
    runs = [[row for row in data[name] if first <= row["round"] < end]
            for first, end in zip(RUNS[name], ends, strict=True)]  # fmt: skip
    return [run for run in runs if run]


def judged(data: Tables, name: str) -> list[Row]:
    """Answers of the last run."""
    return runs_of(data, name)[-1]


def before(data: Tables) -> list[tuple[str, str, int, str, str]]:
    """What the runs before said of the claims that were asked again."""
    said = {
        "corruption": corruption_claims,
        "attacked": lambda rows: kept.claims(rows, data["corruption"]),
        "defended": helped.claims,
    }
    return [
        (claim, name, len({row.get("picture", n) for n, row in enumerate(rows)}), found, verdict)
        for key, told in said.items()
        for name, rows in zip(("first", "second"), runs_of(data, key)[:-1], strict=False)
        for claim, found, verdict in told(rows)
    ]


def ends(row: Row) -> str:
    return str(Contrast(row["value"], row["low"], row["high"]))


def drawn(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The interval of ResNet-50 by what is held for independent."""
    cues, answers = cues_of(rows)
    answer = answers["resnet50"]
    decided = cues.conflict & ((answer == cues.shape) | (answer == cues.texture))
    flags = (answer == cues.shape)[decided]
    sources = np.array([row["picture"].split("-") for row in rows])[decided]
    found = []
    for name, groups in (
        ("pictures", None),
        ("shapes", sources[:, 0]),
        ("textures", sources[:, 1]),
    ):
        interval = share_interval(flags, groups)
        found.append((name, percent(float(flags.mean()), interval.low, interval.high)))
    return [*found, ("shapes and textures", plain(cues.bias(answer).interval()))]


def from_data(data: Tables) -> dict[str, str]:
    """The places of README.md, from the files beside it."""
    cues, answers = cues_of(data["cue"])
    told = {row["what"]: row for row in data["published"]}
    right, hurt = accuracy_of(data["clean"]), corruption_of(judged(data, "corruption"))
    known = {row["network"]: row for row in data["calibration"]}
    main, shapes = [], []
    for name in NETWORKS:
        flags = np.array([row[name] == RIGHT for row in data["clean"]])
        interval = share_interval(flags)
        main.append((
            NAMES[name], plain(cues.bias(answers[name]).interval()),
            percent(right[name].value, interval.low, interval.high), percent(TOP1[name]),
            percent(*(known[name][f"ece{end}"] for end in ("", "_low", "_high"))),
            *(plain(one.interval()) for one in hurt[name]),
        ))  # fmt: skip
    for key, answer in answers.items():
        same = told.get(f"answers of {key}")
        shapes.append((
            f"`{key}`", plain(cues.bias(answer).interval()),
            int((cues.conflict & (answer == cues.shape)).sum()),
            int((cues.conflict & (answer == cues.texture)).sum()),
            percent(same["value"], same["low"], same["high"]) if same else "-",
        ))  # fmt: skip
    names = {
        "published resnet50": "ResNet-50 of torchvision, `model-vs-human`",
        "paper resnet50": "the same, raw data of the paper",
        "paper resnet101": "ResNet-101 of torchvision, raw data of the paper",
        "paper resnet152": "ResNet-152 of torchvision, raw data of the paper",
        "people": "ten people, mean",
    }
    published = [
        (shown, percent(told[what]["value"], told[what]["low"], told[what]["high"]))
        for what, shown in names.items()
    ]
    pictures = len(judged(data, "corruption"))
    return {
        "main": markdown(("network", "shape bias", "accuracy", "published top-1", "ECE",
                          "mCE", "relative mCE"), main)
        + f"\n\nCorrupted pictures: {pictures}, {pictures // 5} of each severity.",
        "claims": markdown(("claim", "statistic [95 %]", "verdict"), claims(data)),
        "shapes": markdown(("network", "shape bias", "by shape", "by texture",
                            "answers as the published ResNet-50"), shapes),
        "published": markdown(("published answers", "shape bias"), published),
        "drawn": markdown(("drawn anew", "shape bias of ResNet-50"), drawn(data["cue"])),
        "before": markdown(("claim", "run", "pictures", "statistic [95 %]", "verdict"),
                           before(data)),
        **kept.tables(judged(data, "attacked"), data["corruption"]),
        **helped.tables(judged(data, "defended")),
        **moved.tables(judged(data, "dynamic"), data["signs"]),
    }  # fmt: skip


FILES = (
    "cue",
    "clean",
    "calibration",
    "corruption",
    "published",
    "attacked",
    "defended",
    "dynamic",
    "signs",
)


def main(folder: str | None = None) -> None:
    """Write published.csv, where there is a folder to write it from, and fill README.md."""
    if folder is not None:
        cue = read_csv(HERE / "cue.csv")
        published = read_published(Path(folder), [row["picture"] for row in cue])
        write_atomic(HERE / "published.csv", csv_text(compared(cue, published)))
    fill(HERE / "README.md", from_data({name: read_csv(HERE / f"{name}.csv") for name in FILES}))


if __name__ == "__main__":
    main(*sys.argv[1:2])
