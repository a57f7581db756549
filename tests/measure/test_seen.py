"""Images that a model has seen: written when it is made, inherited, found when it is measured."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import stockpot
from commands import invoke
from pico import CLASSES, make_classifier, make_dataset
from stockpot.checkpoints.record import read_record, write_record
from stockpot.checkpoints.seen import SEEN, read_seen, seen_as, write_seen
from stockpot.datasets.dataset import TensorImages
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadDataError
from stockpot.measure.overlap import unseen_scores
from stockpot.measure.rescore import rescored
from stockpot.measure.run import measure
from stockpot.measure.transfer import transfer
from stockpot.results.packed import pack_bits, unpack_bits
from stockpot.results.schema import CellResult, Flag


def flag(cell: CellResult, name: str) -> Flag | None:
    return next((found for found in cell.flags if found.name == name), None)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty pictures in a flat file, as a folder of class folders would be."""
    data = make_dataset(n=60)
    assert isinstance(data.images, TensorImages)
    path = tmp_path_factory.mktemp("data") / "photos.npz"
    pixels = data.images.pixels.permute(0, 2, 3, 1).numpy()
    np.savez(path, images=pixels, labels=data.labels.numpy(), classes=np.array(CLASSES))
    return path


@pytest.fixture(scope="module")
def hardened(photos: Path, pico_vit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "hardened"
    done = invoke(
        "harden", "nominal", pico_vit, "--data", photos, "--validate", "-o", out, "-p", "epochs=1"
    )
    assert done.exit_code == 0, done.output
    return out


def test_hardened_and_measured_on_one_flat_set(
    photos: Path, hardened: Path, tmp_path: Path
) -> None:
    """By hand: what is seen is the train and the val part; scores without are on the test part."""
    sizes = {split: len(load_dataset(str(photos), split=split)) for split in ("train", "val")}
    record = read_record(hardened)
    assert record is not None
    assert record.seen is not None
    assert record.seen.images == {"training": sizes["train"], "validation": sizes["val"]}
    (cell,) = measure(str(hardened), "clean", data=str(photos), out=tmp_path / "run")
    (fresh,) = measure(str(hardened), "clean", data=str(photos), data_options={"split": "test"})
    assert (cell.data.split, cell.data.n) == ("all", 60)
    found = flag(cell, "seen")
    assert found is not None
    assert (found.count, found.of) == (sum(sizes.values()), 60)
    assert found.condition == {"training": sizes["train"], "validation": sizes["val"]}
    without, honest = cell.score("unseen_accuracy"), fresh.score("accuracy")
    assert (without.value, without.n) == (honest.value, honest.n)
    assert (without.ci_low, without.ci_high) == (honest.ci_low, honest.ci_high)
    assert not fresh.flags
    marks = unpack_bits(cell.seen, 60)
    assert cell.outcome("correct")[~marks].mean() == honest.value
    stockpot.report(tmp_path / "run", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"{found.count} of 60 images were seen when the model was made" in page
    shown = invoke("measure", hardened, "--data", photos)
    assert "60 images of photos (all)" in shown.output
    assert f"{found.count} of 60 images were seen" in " ".join(shown.output.split())


def test_the_same_weights_that_saw_other_images_are_measured_anew(
    photos: Path, hardened: Path, tmp_path: Path
) -> None:
    """Else the overlap of the former record would be told of the present one."""
    model = Path(shutil.copytree(hardened, tmp_path / "model"))
    (first,) = measure(str(model), "clean", data=str(photos), out=tmp_path / "run")
    record = read_record(model)
    assert record is not None
    half = seen_as("training", read_seen(model).images["training"][:10])
    write_record(model, record.model_copy(update={"seen": write_seen(model, half)}))
    (again,) = measure(str(model), "clean", data=str(photos), out=tmp_path / "run")
    assert first.key.model_fingerprint == again.key.model_fingerprint
    assert flag(again, "seen").count == 10
    assert flag(first, "seen").count > 10


def test_scores_under_attack_are_given_without_seen_images(photos: Path, hardened: Path) -> None:
    attack = {"adversarial": {"norms": "linf", "method": "fgsm", "eps": "0.01"}}
    (cell,) = measure(str(hardened), attack, data=str(photos))
    new = ~unpack_bits(cell.seen, 60)
    robust = cell.score("robust_accuracy")
    name = "robust:{norm}:{eps}".format(**robust.condition)
    without = cell.score("unseen_robust_accuracy")
    assert without.condition == robust.condition
    assert without.value == cell.outcome(name)[new].mean()


SEARCH = {"generator": "colour", "oracle": "none", "budget": 2, "pictures": 0, "per_class": False}
ELSEWHERE: list[tuple[str, dict[str, object], list[str]]] = [
    ("corruption", {"corruptions": "brightness", "severities": "1,5", "baseline": "none"},
     ["mean_corruption_accuracy", "mce"]),
    ("dynamic", SEARCH, ["perturbed_accuracy", "fmr"]),
    ("oracle_audit", {"generator": "colour", "budget": 2}, ["searched_accuracy"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "params", "metrics"), ELSEWHERE)
def test_other_measures_give_their_scores_without_seen_images(
    photos: Path, hardened: Path, name: str, params: dict[str, object], metrics: list[str]
) -> None:
    """What was not seen is the test part: measured alone, it has the same scores."""
    (cell,) = measure(str(hardened), {name: params}, data=str(photos))
    (alone,) = measure(
        str(hardened), {name: params}, data=str(photos), data_options={"split": "test"}
    )
    right = ~unpack_bits(cell.seen, 60)
    # Pictures are corrupted by their row, which differs; so the same records are compared.
    if name == "corruption":
        flags = [cell.outcome(key)[right] for key in cell.outcomes if ":" in key]
        value = cell.score("unseen_mean_corruption_accuracy").value
        assert value == pytest.approx(float(np.mean(flags)))
    else:
        for metric in metrics:
            assert cell.score(f"unseen_{metric}").value == alone.score(metric).value
    assert {f"unseen_{metric}" for metric in ["accuracy", *metrics]} <= {
        score.metric for score in cell.scores
    }
    assert any("on the other" in note and "accuracy" in note for note in cell.notes)
    assert rescored(cell)[2] == ()  # the same numbers from the file alone


def test_sets_outside_stay_whole_where_seen_images_go(photos: Path, hardened: Path) -> None:
    """The set outside has as many images as the data, and is not it."""
    other = {"shift": {"outside": {"other": str(photos)}}}
    (cell,) = measure(str(hardened), other, data=str(photos))
    (alone,) = measure(str(hardened), other, data=str(photos), data_options={"split": "test"})
    assert cell.score("outside_accuracy").n == alone.score("outside_accuracy").n == 60
    assert cell.score("unseen_gap").value == alone.score("gap").value


def test_a_measure_without_records_of_images_says_so(photos: Path, hardened: Path) -> None:
    (cell,) = measure(str(hardened), {"cost": {"repeats": 3}}, data=str(photos))
    assert any("keeps no record of single images" in note for note in cell.notes)
    # Of a sample nobody knows which of its images were seen.
    (clean,) = measure(str(hardened), "clean", data=str(photos))
    sample = {
        "outcomes": {"correct": pack_bits(np.ones(20, bool))},
        "outcome_sizes": {"correct": 20},
    }
    assert unseen_scores(clean)
    assert not unseen_scores(clean.model_copy(update=sample))


def test_transfer_tells_what_was_seen_and_what_hides(photos: Path, hardened: Path) -> None:
    class Rounds(nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            seen = torch.round(pixels * 255) / 255
            return seen.flatten(1)[:, :4]

    numbered = make_classifier(Rounds(), tuple(f"LABEL_{k}" for k in range(4)))
    models = {"hardened": str(hardened), "rounds": numbered}
    first, second = transfer(models, data=str(photos), method="pgd", steps=1)
    for cell in (first, second):  # whoever looks at images that were found on it
        (zero,) = [f for f in cell.flags if f.name == "zero_gradients"]
        assert zero.condition["maker"] == "rounds"
        assert any(note.startswith("unaudited") for note in cell.notes)
    assert flag(first, "seen") is not None
    assert first.score("unseen_transfer_accuracy", maker="rounds").n == int(
        (~unpack_bits(first.seen, 60)).sum()
    )
    assert flag(second, "classes_by_position") is not None
    assert flag(second, "seen") is None


def test_seen_images_are_left_out_on_demand(photos: Path, hardened: Path, tmp_path: Path) -> None:
    (cell,) = measure(str(hardened), "clean", data=str(photos), unseen=True, out=tmp_path)
    (fresh,) = measure(str(hardened), "clean", data=str(photos), data_options={"split": "test"})
    assert cell.data.n == fresh.data.n
    assert cell.outcomes == fresh.outcomes
    assert flag(cell, "seen") is None
    left = flag(cell, "seen_left_out")
    assert left is not None
    assert left.count == 60 - fresh.data.n
    plain = measure(str(hardened), "clean", data=str(photos), out=tmp_path)[0]
    assert plain.data.n == 60  # another cell, not the saved one
    assert len(list((tmp_path / "results").glob("*.json"))) == 2
    with pytest.raises(BadDataError, match="were seen when it was made"):
        measure(
            str(hardened), "clean", data=str(photos), unseen=True, data_options={"split": "train"}
        )


def test_a_soup_of_forty_of_sixty_warns_on_all_sixty(
    photos: Path, pico_vit: Path, tmp_path: Path
) -> None:
    done = invoke(
        "season", "greedy", f"a={pico_vit}", f"b={pico_vit}", "--data", photos, "--shots", 40,
        "-o", tmp_path / "soup",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    (cell,) = measure(str(tmp_path / "soup"), "clean", data=str(photos))
    found = flag(cell, "seen")
    assert found is not None
    assert (found.count, found.of, found.condition) == (40, 60, {"seasoning": 40})
    assert cell.score("unseen_accuracy").n == 20
    equal = stockpot.season("uniform", {"a": str(pico_vit)}, str(photos), shots=40)
    assert not equal.seen  # it looked at none of them


def test_what_parents_saw_is_inherited(photos: Path, hardened: Path, tmp_path: Path) -> None:
    """A fusion of two models trained on different images, and a soup of it, have seen both."""
    other = tmp_path / "other"
    rows = load_dataset(str(photos), split="test")
    stockpot.harden("nominal", str(hardened), rows, out=other, epochs=1)
    fused = tmp_path / "fused"
    stockpot.fuse("average", [str(hardened), str(other)], out=fused)
    assert sum(len(known) for known in read_seen(fused).images.values()) == 60
    found = stockpot.season("greedy", [str(fused)], str(photos), shots=20, out=tmp_path / "soup")
    assert "40 of 40 images scored were seen by members" in found.record.details["notes"]["seen"]
    assert sorted(read_seen(tmp_path / "soup").images) == ["seasoning", "training", "validation"]
    (cell,) = measure(str(tmp_path / "soup"), "clean", data=str(photos))
    assert "no score here is on new images" in " ".join(cell.notes)
    (memory,) = measure(found.model, "clean", data=str(photos))
    assert flag(memory, "seen") == flag(cell, "seen")


def test_a_model_trained_in_memory_knows_it_too(photos: Path, pico_vit: Path) -> None:
    trained = stockpot.harden("nominal", str(pico_vit), str(photos), epochs=1)
    (cell,) = measure(trained, "clean", data=str(photos))
    found = flag(cell, "seen")
    assert found is not None
    assert found.count == len(load_dataset(str(photos), split="train"))


def test_hashes_that_are_gone_are_missed(photos: Path, hardened: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(hardened, tmp_path / "copy"))
    (copy / SEEN).unlink()
    (cell,) = measure(str(copy), "clean", data=str(photos))
    lost = flag(cell, "seen_unknown")
    assert lost is not None
    assert lost.count == len(load_dataset(str(photos), split="train")) + len(
        load_dataset(str(photos), split="val")
    )
    assert "seen.npz is missing" in " ".join(cell.notes)


def test_records_without_hashes_tell_by_whole_sets(
    photos: Path, hardened: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(hardened, tmp_path / "earlier"))
    record = read_record(copy)
    assert record is not None
    write_record(copy, record.model_copy(update={"seen": None}))
    (same,) = measure(str(copy), "clean", data=str(photos), data_options={"split": "train"})
    found = flag(same, "seen")
    assert found is not None
    assert found.count == found.of == same.data.n


def test_a_model_without_a_record_costs_no_look_at_the_images(
    photos: Path, pico_vit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(images: object) -> None:
        raise AssertionError("images were hashed")

    monkeypatch.setattr("stockpot.measure.overlap.image_hashes", fail)
    (cell,) = measure(str(pico_vit), "clean", data=str(photos))
    assert not cell.flags


class _First(nn.Module):
    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.eye(4)[torch.zeros(len(pixels), dtype=torch.long)]


def test_classes_taken_by_position_are_told() -> None:
    data = make_dataset(n=8)
    numbered = make_classifier(_First(), tuple(f"LABEL_{k}" for k in range(4)))
    (cell,) = measure(numbered, "clean", data=data)
    found = flag(cell, "classes_by_position")
    assert found is not None
    assert (found.count, found.of) == (4, 4)
    assert [note for note in cell.notes if "does not name them" in note]
    (named,) = measure(make_classifier(_First()), "clean", data=data)
    assert not named.flags
