"""`stockpot.choose`: asking for few labels, in a rehearsal and in a file."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import stockpot
from commands import invoke
from pico import CLASSES, ReadsLabel, make_classifier, make_dataset
from stockpot import choose
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError, UserError
from stockpot.files import csv_name
from stockpot.measure.unlabelled.selection import Method
from stockpot.models.classifier import Classifier

METHODS: tuple[Method, ...] = ("coda", "active_testing", "random")


class Sometimes(nn.Module):
    """Right where the last pixel is darker than a share of white, and one class off elsewhere."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.reads = ReadsLabel(len(CLASSES))
        self.share = nn.Parameter(torch.tensor(share))

    def forward(self, pixels: Tensor) -> Tensor:
        logits = self.reads(pixels) / 400
        right = pixels[:, 0, -1, -1] < self.share
        found: Tensor = torch.where(right[:, None], logits, logits.roll(1, dims=1))
        return found


class Silent(nn.Module):
    """Answers nothing but NaN."""

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.full((len(pixels), len(CLASSES)), torch.nan)


def pool(*shares: float) -> dict[str, Classifier]:
    return {f"m{share}": make_classifier(Sometimes(share)) for share in shares}


MODELS = pool(0.25, 0.9, 0.5)


@pytest.mark.parametrize("method", METHODS)
def test_a_rehearsal_finds_the_best_model(method: Method) -> None:
    data = make_dataset(120)
    found = choose(MODELS, data=data, oracle=True, method=method, budget=25, sure=1.0, rate=1.0)
    assert found.best == "m0.9"
    assert found.labels == 25
    assert len(found.trace) == 26
    assert sum(found.probability.values()) == pytest.approx(1)
    truth = {name: score.value for name, score in found.accuracy.items()}
    assert truth["m0.9"] == max(truth.values())
    if method != "coda":  # which says how often a model leads in a class
        assert found.probability["m0.9"] > 0.9


@pytest.mark.parametrize("method", METHODS)
def test_a_budget_beyond_the_images_labels_them_all(method: Method) -> None:
    data = make_dataset(8)
    found = choose(MODELS, data=data, oracle=True, method=method, budget=100, sure=1.0)
    assert (found.labels, len(found.trace)) == (8, 9)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_label_counts_for_something(rate: float) -> None:
    with pytest.raises(BadParameterError, match="rate: expected a number above 0"):
        choose(MODELS, data=make_dataset(8), oracle=True, method="coda", rate=rate)


def test_one_that_says_nothing_is_never_best() -> None:
    # All are of class 0, which the largest of several NaNs would be taken for.
    data = make_dataset(40)
    data = replace(data, labels=torch.zeros(40, dtype=torch.long))
    models = {"silent": make_classifier(Silent()), **pool(0.5)}
    for method in METHODS:
        found = choose(models, data=data, oracle=True, method=method, budget=20, sure=1.0)
        assert found.best == "m0.5", method
        assert found.notes == ("silent: 40 of 40 outputs were NaN or infinite: wrong",)


def pictures(folder: Path, data: Dataset) -> dict[str, str]:
    """The images as files without class folders, and what they are."""
    folder.mkdir()
    pixels = torch.cat([batch.images for batch in data.batches()])
    for row, image in enumerate(pixels):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{row:02}.png")
    labels = [data.classes[label] for label in data.labels.tolist()]
    return {f"{row:02}.png": label for row, label in enumerate(labels)}


def answer(path: Path, labels: dict[str, str]) -> list[str]:
    """Fill in what is asked, as a person does; says which pictures those were."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    asked = [row["file"] for row in rows if not row["label"]]
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows({**row, "label": labels[row["file"]]} for row in rows)
    return asked


@pytest.mark.parametrize("method", METHODS)
def test_a_file_asks_what_a_rehearsal_asks(method: Method, tmp_path: Path) -> None:
    data = make_dataset(24)
    labels = pictures(tmp_path / "unlabelled", data)
    path = tmp_path / "to_label.csv"
    step = 1 if method == "coda" else 3  # draws are the same in one go and after a pause
    for done in range(0, 7, step):
        found = choose(MODELS, data=tmp_path / "unlabelled", labels=path, method=method,
                       batch=step, budget=6, sure=1.0)  # fmt: skip
        assert found.labels == done
        assert not found.accuracy  # nobody knows
        if done < 6:
            assert list(found.asked) == answer(path, labels)
    assert not found.asked
    whole = choose(MODELS, data=data, oracle=True, method=method, budget=6, sure=1.0)
    assert found.probability == pytest.approx(whole.probability)
    assert found.trace == whole.trace


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "unlabelled"
    labels = pictures(folder, make_dataset(6))
    odd = dict(
        zip(labels, (" a.png", "b, c.png", 'd"e.png', "=f.png", "ä ö.png", "g .png"), strict=True)
    )
    for name, other in odd.items():
        (folder / name).rename(folder / other)
    path = tmp_path / "to_label.csv"
    choose(MODELS, data=folder, labels=path, method="random", batch=6)
    rows = [[csv_name(name), label, *rest] for name, label, *rest in csv.reader(path.open())]
    assert {row[0] for row in rows[1:]} == set(odd.values())
    path.write_text(path.read_text(encoding="utf-8").replace(",,", ",ant,"), encoding="utf-8")
    assert choose(MODELS, data=folder, labels=path, method="random", sure=1.0).labels == 6


def test_what_is_not_answered_yet_is_not_asked_twice(tmp_path: Path) -> None:
    labels = pictures(tmp_path / "unlabelled", make_dataset(12))
    path = tmp_path / "to_label.csv"

    def ask(method: Method = "coda") -> tuple[int, tuple[str, ...]]:
        found = choose(MODELS, data=tmp_path / "unlabelled", labels=path, method=method, batch=3)
        return found.labels, found.asked

    first = ask()
    text = path.read_text(encoding="utf-8")
    assert ask() == first == (0, tuple(line.split(",")[0] for line in text.splitlines()[1:]))
    assert path.read_text(encoding="utf-8") == text
    one = first[1][1]
    path.write_text(text.replace(f"{one},,", f"{one},{labels[one]},"), encoding="utf-8")
    assert ask() == (1, (first[1][0], first[1][2]))
    with pytest.raises(UserError, match="another question"):
        ask("random")
    path.write_text(text.replace(f"{one},,", f"{one},gnu,"), encoding="utf-8")
    with pytest.raises(UserError, match=r"line 3: the label 'gnu'"):
        ask()
    path.write_text("file,label\nelsewhere.png,ant\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"line 2: no picture is called elsewhere\.png"):
        ask()


def test_options_of_the_models_are_part_of_the_question(tmp_path: Path) -> None:
    data = make_dataset(12)
    labels = pictures(tmp_path / "unlabelled", data)
    path, code = tmp_path / "to_label.csv", tmp_path / "means.py"
    code.write_text(
        f"def make(scale):\n    return lambda pixels: scale * pixels[:, 0, 0, :{len(CLASSES)}]\n"
    )

    def ask(**options: object) -> int:
        given = {"size": 8, "classes": list(CLASSES), "arguments": {"scale": 9}, **options}
        models = dict.fromkeys("ab", f"{code}:make")
        found = choose(models, data=tmp_path / "unlabelled", labels=path, method="active_testing",
                       batch=3, sure=1.0, model_options=given)  # fmt: skip
        return found.labels

    assert ask(defend="clahe") == 0
    answer(path, labels)
    assert ask(defend="clahe") == 3
    for others in ({}, {"defend": "clahe", "mean": [0.5, 0.5, 0.5]}):
        with pytest.raises(UserError, match="another question"):
            ask(**others)


def test_accuracies_are_foretold_from_a_source_that_is_kept_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("estimates", "pool"):
        monkeypatch.setattr(f"stockpot.measure.unlabelled.{module}.RESAMPLES", 40)
    data = make_dataset(90)
    source, target = data.take(range(50)), data.take(range(40, 90))
    found = choose(MODELS, data=target, source=source)
    assert json.loads(json.dumps(found.plain()))["labels"] == found.labels == 0
    assert "source: 40 of toy:test" in found.notes[0]
    assert "10 source images are left out" in found.notes[1]
    # The same images under other names: nothing has shifted, and all say about the same.
    for name, told in found.estimates.items():
        assert {*told} == {"atc_confidence", "atc_entropy", "doc", "cot", "nuclear_norm",
                           "aline_s", "aline_d"}  # fmt: skip
        for method in ("doc", "aline_s"):
            value, ends = told[method]
            assert ends.low <= value <= ends.high
            assert value == pytest.approx(found.accuracy[name].value, abs=0.2)


def test_the_measure_reads_no_label_of_what_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockpot.measure.unlabelled.estimates.RESAMPLES", 40)
    data = make_dataset(90)
    source, target = data.take(range(50)), data.take(range(50, 90))
    poisoned = replace(target, labels=(target.labels + 1) % 4, fingerprint="another")
    first, second = (
        stockpot.measure(MODELS["m0.5"], {"label_free": {"source": source}}, data=each)[0]
        for each in (target, poisoned)
    )
    assert first.score("accuracy").value != second.score("accuracy").value
    told = [score for score in first.scores if score.metric != "accuracy"]
    assert len(told) == 5
    assert told == [score for score in second.scores if score.metric != "accuracy"]
    assert "source 50 of toy:test" in first.convention


def test_the_command() -> None:
    words = ["choose", "icons-nominal", "icons-linf", "--data", "icons", "--limit", "6"]
    done = invoke(*words, "--oracle", "--budget", "2")
    assert done.exit_code == 0
    assert "6 images, 2 labels, active_testing" in done.output
    assert "best: icons-" in done.output
    for wrong, said in (
        (["--method", "guess"], "guess"),
        (["--oracle", "--labels", "a.csv"], "not both"),
        (["-s", "split=val"], "--source"),
        (["--sure", "2"], "0 < sure <= 1"),
    ):
        failed = invoke(*words, *wrong)
        assert failed.exit_code == 1
        assert said in failed.output
    assert "two models" in invoke("choose", "icons-linf", "--data", "icons").output
