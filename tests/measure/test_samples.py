"""Per-image records: the numbers of the scores, read by other programs, whole after a kill."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch import nn

from pico import CLASSES, ReadsLabel, make_classifier, make_dataset
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError, UserError
from stockpot.measure.run import measure
from stockpot.results import store as stores
from stockpot.results.samples import read_samples
from stockpot.results.samples_file import samples_path
from stockpot.results.store import load_results, result_files

DATA = make_dataset(24)


class Hesitates(nn.Module):
    """Wrong about one class, and silent about another: NaN is no answer."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = ReadsLabel(4)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        found = self.reads(pixels) / 50
        cat, dog = found.argmax(dim=1) == 2, found.argmax(dim=1) == 3
        found = torch.where(cat[:, None], found.roll(1, dims=1), found)
        return torch.where(dog[:, None], torch.nan, found)


MEASURES = {
    "clean": {},
    "corruption": {"corruptions": ("fog", "contrast"), "severities": (1, 5), "baseline": "none"},
    "adversarial": {"norms": "linf,l2", "eps": ("8/255", "0.5"), "method": "pgd", "steps": 2},
    "shift": {"outside": {"other": "other"}},
    "surface": {},
    "shape_bias": {},
    "selective": {},
    "calibration": {"held_out": "content"},
    "stream": {"corruptions": "fog,contrast", "attacked": 0, "batch": 8},
    "dynamic": {"generator": "colour", "budget": 2, "step": 0.1, "oracle": "none"},
    "certified": {"n0": 4, "n": 40, "alpha": 0.05},
}
SCORED = {
    "accuracy": "correct",
    "robust_accuracy": "robust:{norm}:{eps}",
    "union_accuracy": "union",
    "outside_accuracy": "outside:{set}",
    "error": "{corruption}:{severity}",
    "smoothed_accuracy": "predicted",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("samples") / "run"
    models = {
        "hesitates": make_classifier(Hesitates()),
        "guess": make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4))),
    }
    asked = {**MEASURES, "shift": {"outside": {"other": str(_folder(out.parent / "other"))}}}
    measure(models, asked, data=DATA, out=out, log_samples=True)
    return out


def _folder(root: Path) -> Path:
    """The first twelve images as files."""
    for row, label in enumerate(DATA.labels[:12].tolist()):
        folder = root / CLASSES[label]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = DATA.images.pixels[row].permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(folder / f"{row}.png")
    return root


def test_scores_follow_from_the_records_alone(run: Path) -> None:
    compared, answers = set(), 0
    for file in result_files(run):
        (result,) = load_results(file)
        rows = pq.read_table(samples_path(file)).to_pylist()  # by pyarrow alone, as anybody would
        for row in rows:
            # What is noted beside an outcome agrees with it; no answer is never right.
            if row["prediction"] is not None:
                answers += 1
                assert row["correct"] == (row["prediction"] == row["label"]), row
        for score in result.scores:
            name = SCORED.get(score.metric, "").format_map({**score.condition, "": ""})
            if score.metric == "accuracy" and "corruption" in score.condition:
                name = "{corruption}:{severity}".format_map(score.condition)
            flags = [row["correct"] for row in rows if row["record"] == name]
            if not flags:
                continue
            share = sum(flags) / len(flags)
            wanted = 1 - score.value if score.metric == "error" else score.value
            assert share == pytest.approx(wanted, abs=1e-12), (result.key.measure, score)
            assert len(flags) == score.n
            compared.add((result.key.measure, score.metric))
    assert {name for name, _ in compared} == set(MEASURES)
    assert {("adversarial", "union_accuracy"), ("shift", "outside_accuracy")} <= compared
    assert ("corruption", "error") in compared
    assert answers > len(MEASURES) * len(DATA)


def test_rows_say_which_image_under_what_and_what_was_answered(run: Path) -> None:
    (file,) = (f for f in result_files(run) if f.name.startswith("hesitates--corruption"))
    rows = pq.read_table(samples_path(file)).to_pylist()
    clean = [row for row in rows if row["record"] == "correct"]
    assert [row["image"] for row in clean] == list(range(24))
    assert [row["label"] for row in clean] == [CLASSES[int(n)] for n in DATA.labels]
    answer = {"ant": "ant", "bee": "bee", "cat": "dog", "dog": None}
    assert [row["prediction"] for row in clean] == [answer[row["label"]] for row in clean]
    assert [row["correct"] for row in clean] == [row["label"] in ("ant", "bee") for row in clean]
    assert all((row["confidence"] is None) == (row["prediction"] is None) for row in clean)
    model, pixels = make_classifier(Hesitates()), DATA.images.pixels[:1] / 255
    sure = model(pixels).softmax(dim=1).max().item()
    assert clean[0]["confidence"] == pytest.approx(sure, abs=1e-6)
    assert len({row["name"] for row in clean}) == 24  # hashes: these images have no files
    (fog,) = {(r["kind"], r["severity"]) for r in rows if r["record"] == "fog:5"}
    assert fog == ("corruption", 5.0)
    attacked = next(f for f in result_files(run) if f.name.startswith("guess--adversarial"))
    rows = [r for r in pq.read_table(samples_path(attacked)).to_pylist() if r["norm"] == "linf"]
    assert {(r["kind"], r["attack"], r["eps"]) for r in rows} == {("attack", "pgd", "8/255")}
    # The picture that was found is answered as the verdict says.
    assert all(r["correct"] == (r["prediction"] == r["label"]) for r in rows)


def test_it_is_written_with_the_cell_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {"reads": make_classifier(ReadsLabel(4))}
    asked = {"data": DATA, "out": tmp_path}
    measure(model, "clean", **asked)
    (before,) = load_results(tmp_path)
    assert before.samples == ""
    written = stores.write_atomic

    def killed(path: Path, content: bytes | str) -> None:
        if path.suffix == ".json":
            raise KeyboardInterrupt
        written(path, content)

    monkeypatch.setattr(stores, "write_atomic", killed)
    with pytest.raises(KeyboardInterrupt):
        measure(model, "clean", **asked, log_samples=True)
    # The cell is still the one without records, and says so.
    (file,) = result_files(tmp_path)
    (there,) = load_results(file)
    assert read_samples(file, there) is None
    monkeypatch.setattr(stores, "write_atomic", written)
    (after,) = measure(model, "clean", **asked, log_samples=True)
    assert after.scores == before.scores
    assert read_samples(file, *load_results(file)) is not None
    stamp = file.stat().st_mtime_ns
    assert measure(model, "clean", **asked, log_samples=True) == [after]  # found, not measured
    assert file.stat().st_mtime_ns == stamp
    samples_path(file).write_bytes(b"PAR1 of another run")
    with pytest.raises(UserError, match="not the file that"):
        read_samples(file, after)
    samples_path(file).unlink()
    with pytest.raises(UserError, match=r"missing.*--log-samples"):
        read_samples(file, after)
    measure(model, "clean", **asked, log_samples=True)  # missing records are made again
    assert read_samples(file, *load_results(file)) is not None


def test_records_want_a_folder() -> None:
    with pytest.raises(BadParameterError, match="log_samples"):
        measure(make_classifier(ReadsLabel(4)), "clean", data=DATA, log_samples=True)


def test_noting_changes_no_number(run: Path) -> None:
    models = {"hesitates": make_classifier(Hesitates())}
    cheap = ("clean", "corruption", "adversarial", "surface", "stream")
    plain = measure(models, {name: MEASURES[name] for name in cheap}, data=DATA)
    kept = {r.key.measure: r for r in load_results(run) if r.key.model == "hesitates"}
    for result in plain:
        known = kept[result.key.measure]
        assert [s for s in known.scores if s.unit != "seconds"] == result.scores
        assert known.outcomes == result.outcomes


def test_groups_and_names_of_files_come_along(tmp_path: Path) -> None:
    columns = {
        **DATA.columns,
        "file": tuple(f"pictures/{n}.png" for n in range(24)),
        "original": tuple(str(n // 2) for n in range(24)),
    }
    data = Dataset(
        "toy", "test", DATA.images, DATA.labels, CLASSES, DATA.fingerprint, columns=columns
    )
    measure(make_classifier(ReadsLabel(4)), "clean", data=data, out=tmp_path, log_samples=True)
    table = pq.read_table(samples_path(result_files(tmp_path)[0])).to_pydict()
    assert table["name"] == list(columns["file"])
    assert table["group"] == list(columns["original"])
    assert np.all(table["correct"])
