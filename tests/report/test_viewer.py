"""The viewer's files: which pictures are in them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from torch import nn

from commands import invoke
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.attack.saved_images import load_images
from stockpot.corrupt.apply import corrupt, picture_seeds
from stockpot.errors import UserError
from stockpot.measure.run import measure
from stockpot.measure.samples.pictures import DatasetPictures
from stockpot.report.viewer.collect import collect
from stockpot.report.viewer.sheets import told_apart, write_sheets
from stockpot.report.viewer.site import write_site
from stockpot.results.samples_file import samples_path
from stockpot.results.store import ResultStore, load_results, result_files
from stockpot.run.folder import prune
from stockpot.run.follow import preview, run

DATA = make_dataset(24)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("viewer") / "run"
    models = {
        "reads": make_classifier(ReadsLabel(4)),
        "guess": make_classifier(nn.Sequential(nn.Flatten(), nn.Linear(768, 4))),
    }
    few = {"corruptions": ("gaussian_noise", "fog"), "severities": (3,), "baseline": "none"}
    attack = {"norms": "linf", "eps": "8/255", "method": "pgd", "steps": 2}
    measure(models, {"clean": {}, "corruption": few}, data=DATA, out=out, seed=3, log_samples=True)
    for name, model in models.items():
        asked = {"adversarial": {**attack, "save": str(out.parent / name)}}
        measure({name: model}, asked, data=DATA, out=out, log_samples=True)
    return out


def test_pictures_are_those_that_were_measured(measured: Path) -> None:
    """Corrupted ones again by the same seeds; attacked ones as the attack has saved them."""
    pictures, rows = DatasetPictures(DATA), [2, 5, 17]
    cells = {(r.key.measure, r.key.model): r for r in load_results(measured)}
    shown = pictures.under(cells["corruption", "reads"], "gaussian_noise:3", rows)
    assert shown is not None
    wanted = corrupt(DATA.images.pixels, "gaussian_noise", 3, seed=picture_seeds(3, range(24)))
    for picture, row in zip(shown, rows, strict=True):
        assert np.array_equal(np.asarray(picture), wanted[row].permute(1, 2, 0).numpy())
    attacked = pictures.under(cells["adversarial", "guess"], "robust:linf:8/255", rows)
    assert attacked is not None
    (found,) = load_images(str(measured.parent / "guess")).images.values()
    pixels = (found[17] * 255).round().permute(1, 2, 0).numpy()
    assert np.array_equal(np.asarray(attacked[2]), pixels)
    # Of what cannot be had again there is nothing, and the page shows the original and says so.
    assert pictures.under(cells["adversarial", "guess"], "union", rows) is None


def test_models_meet_where_they_were_asked_the_same(measured: Path) -> None:
    (images,) = collect(result_files(measured))
    assert images.models == ["guess", "reads"]
    # Where each attack has saved its images makes no other question of it.
    names = ["clean", "gaussian_noise:3", "fog:3", "robust:linf:8/255"]
    assert list(images.conditions) == names
    assert all(len(shown.columns) == 2 for shown in images.conditions.values())
    clean = images.conditions["clean"]
    split = clean.columns["guess"].correct != clean.columns["reads"].correct
    assert told_apart(images, [clean], int(split.sum())) == np.flatnonzero(split).tolist()


def test_sheets_hold_every_picture_at_its_place(tmp_path: Path) -> None:
    colours = [(n, 200, 255 - n) for n in range(0, 240, 3)]  # 80: a sheet of 64 and one of 16
    side = write_sheets(tmp_path, [Image.new("RGB", (40, 20), colour) for colour in colours])
    assert side == 40
    with Image.open(tmp_path / "1.jpg") as sheet:
        assert sheet.size == (8 * 40, 2 * 40)
        for at, colour in enumerate(colours[64:]):
            middle = sheet.getpixel((at % 8 * 40 + 20, at // 8 * 40 + 20))
            assert np.abs(np.subtract(middle, colour)).max() <= 3
            assert sheet.getpixel((at % 8 * 40 + 20, at // 8 * 40 + 2))[1] < 150  # grey above it


def test_a_folder_of_something_else_is_left_alone(measured: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    done = invoke("view", measured, "-o", tmp_path)
    assert done.exit_code == 1
    assert "something else" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    site = tmp_path / "site"
    write_site(result_files(measured), site)
    (site / "old.js").touch()
    write_site(result_files(measured), site)  # a viewer is replaced whole
    assert not (site / "old.js").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site", "thesis.tex"]


def test_another_question_is_another_condition(measured: Path, tmp_path: Path) -> None:
    (cell,) = load_results(next(f for f in result_files(measured) if "guess--adv" in f.name))
    store = ResultStore(tmp_path / "results")
    for steps in (2, 9):
        key = cell.key.model_copy(update={"params": {**cell.key.params, "steps": steps}})
        store.save(cell.model_copy(update={"key": key, "samples": ""}))
    (images,) = collect(result_files(tmp_path))
    names = ["clean", "robust:linf:8/255/steps=2", "robust:linf:8/255/steps=9"]
    assert sorted(images.conditions) == names


def test_two_models_of_one_name_are_two(measured: Path, tmp_path: Path) -> None:
    (cell,) = load_results(next(f for f in result_files(measured) if "guess--clean" in f.name))
    for print_ in ("a" * 64, "b" * 64):
        key = cell.key.model_copy(update={"model_fingerprint": print_})
        other = cell.model_copy(update={"key": key, "samples": ""})
        ResultStore(tmp_path / "results").save(other)
    (images,) = collect(result_files(tmp_path))
    assert len(images.models) == 2
    assert all(name.startswith("guess (") for name in images.models)


def test_results_that_say_nothing_of_images_are_refused(measured: Path, tmp_path: Path) -> None:
    cell = load_results(measured)[0].model_copy(update={"outcomes": {}, "samples": ""})
    ResultStore(tmp_path / "results").save(cell)
    with pytest.raises(UserError, match="single images"):
        write_site(result_files(tmp_path), tmp_path / "site")


def test_a_recipe_asks_for_records(tmp_path: Path) -> None:
    recipe = {
        "version": 1,
        "data": {"few": {"dataset": "icons", "limit": 6}},
        "models": {"resnet": {"load": "icons-resnet"}},
        "measure": {"with": [{"measure": "clean", "data": "few"}]},
    }
    run(recipe, out=tmp_path)
    asked = {"measure.log_samples": True}
    assert not preview(recipe, out=tmp_path, **asked).cells[0].there  # it has no records yet
    run(recipe, out=tmp_path, **asked)
    assert preview(recipe, out=tmp_path, **asked).cells[0].there
    (file,) = result_files(tmp_path)
    assert pq.read_table(samples_path(file)).num_rows == 6
    # What is pruned takes its records along.
    run(recipe, out=tmp_path, **{"data.few.limit": 5})
    prune(tmp_path)
    assert not list((tmp_path / "results").glob("*.parquet"))


def test_an_attack_leaves_records_for_the_viewer(tmp_path: Path) -> None:
    few = ("--data", "icons", "--limit", 4, "--method", "fgsm", "--log-samples", tmp_path / "run")
    assert invoke("attack", "icons-resnet", *few).exit_code == 0
    done = invoke("view", tmp_path / "run", "--changed", 0)
    assert done.exit_code == 0, done.output
    (images,) = collect(result_files(tmp_path / "run"))
    assert images.labels is not None
    assert images.source.source == "icons"
    assert (tmp_path / "run" / "view" / "pictures" / "0" / "original" / "0.jpg").is_file()
