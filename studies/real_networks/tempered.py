"""Why EfficientNet-Lite is less sure than it is right: a scale of logits, or what it is shown?

    python studies/real_networks/tempered.py runs/real_networks --pictures imagenet-sample-images

Writes tempered.csv and looks.csv beside this file.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from study import FEW, LITE, network, photographs, whole
from torch import nn

import stockpot
from stockpot.datasets.dataset import Dataset
from stockpot.files import write_atomic
from stockpot.models.classifier import Classifier
from stockpot.models.preprocess import IMAGENET_MEAN, IMAGENET_STD
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results
from stockpot.results.tables import csv_text, score_row

HERE = Path(__file__).parent
PICTURES = slice(900, 1000)
"""Of the order by seed 0: those that no other part of the study attacks or corrupts."""
LOOKS = ("as in the study", "cropped to 7/8", "whole", "bilinear", "ImageNet's mean and deviation",
         "batch norms with epsilon 1e-5")  # fmt: skip


def looked(model: Classifier, look: str) -> Classifier:
    """The network with one thing changed."""
    shown = model.preprocess
    if look == "whole":
        return whole(model)
    if look == "cropped to 7/8":
        shown = replace(shown, resized=round(shown.size.height * 8 / 7))
    elif look == "bilinear":
        shown = replace(shown, interpolation="bilinear")
    elif look.startswith("ImageNet"):
        shown = replace(shown, mean=IMAGENET_MEAN, std=IMAGENET_STD)
    elif look.startswith("batch norms"):
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps = 1e-5
    return Classifier(model.network, shown, model.classes, model.origin).eval()


def looks(run: Path, data: Dataset) -> list[dict[str, Any]]:
    """Accuracy and calibration error of each look, on some pictures."""
    rows = sorted(np.random.default_rng(0).permutation(len(data)).tolist()[PICTURES])
    some, found = data.take(rows), []
    for name in LITE:
        for number, look in enumerate(LOOKS):
            folder = run / "looks" / f"{name}-{number}"
            if not folder.exists():
                model = looked(network(name, run), look)
                stockpot.measure({name: model}, "clean", data=some, out=folder, batch_size=FEW)
            (cell,) = load_results(folder)
            score = score_row(cell, ("accuracy", "ece"))
            shown = {key: round(value, 4) for key, value in score.items() if value is not None}
            found.append({"network": name, "look": look, **shown})
    return found


def tempered(run: Path, data: Dataset) -> list[dict[str, Any]]:
    """Whether one factor of all logits mends calibration; it is fitted on half of the pictures."""
    for name in LITE:
        start, asked = time.process_time(), {"calibration": {"held_out": "content"}}
        stockpot.measure(
            {name: network(name, run)}, asked, data=data, out=run / "tempered", batch_size=FEW
        )
        print(f"{name}, tempered: {time.process_time() - start:.0f} s", flush=True)
    cells = {cell.key.model: cell for cell in load_results(run / "tempered")}
    return [factor_row(cells[name]) for name in LITE]


def factor_row(cell: CellResult) -> dict[str, Any]:
    """Calibration errors as they are and with the temperature that fits the other half."""
    row: dict[str, Any] = {"network": cell.key.model}
    for score in cell.scores:
        if score.metric == "temperature":
            row["temperature"] = round(score.value, 4)
        elif score.metric == "ece":
            name = "ece_after" if score.condition else "ece_before"
            ends = {"": score.value, "_low": score.ci_low, "_high": score.ci_high}
            row |= {f"{name}{end}": round(value, 4) for end, value in ends.items()
                    if value is not None}  # fmt: skip
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--pictures", type=Path, required=True, help="the clone that holds them")
    given = parser.parse_args()
    data = photographs(given.run, given.pictures)
    for name, part in (("tempered", tempered), ("looks", looks)):
        write_atomic(HERE / f"{name}.csv", csv_text(part(given.run, data)))


if __name__ == "__main__":
    main()
