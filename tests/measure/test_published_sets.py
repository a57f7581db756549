"""Published sets: FMR of later models, hashes that hold, and people who agree or do not."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

from pico import CLASSES, make_classifier, make_dataset
from stockpot.dynamic.oracle import Setting
from stockpot.dynamic.oracles import networks, oracles
from stockpot.dynamic.oracles.raters import krippendorff_alpha
from stockpot.errors import UserError
from stockpot.measure.run import measure
from stockpot.results.schema import CellResult

COUNT = 24
SMALL: dict[str, Any] = {
    "generator": "colour",
    "budget": 8,
    "step": 0.1,
    "oracle": "classifier",
    "oracle_params": {"model": "judge"},
}


class Linear(nn.Module):
    """A seeded linear classifier of the toy pictures."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(4, 768, generator=generator) / 8)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return (pixels.flatten(1) - 0.5) @ self.weight.T


class SeesTwo(nn.Module):
    """Sees the first class where the label row is dark, else the second."""

    def __init__(self) -> None:
        super().__init__()
        self.levels = nn.Parameter(torch.tensor([0.0, 0.3, 9.0, 9.0]))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        seen = pixels[:, :, 0, :].mean(dim=(1, 2))
        return -20 * (seen[:, None] - self.levels).abs()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CellResult]:
    folder = tmp_path_factory.mktemp("published") / "hard"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(networks, "load_for", lambda *a, **k: make_classifier(SeesTwo()))
        settings = {**SMALL, "export": str(folder)}
        model = make_classifier(Linear())
        (result,) = measure(model, {"dynamic": settings}, data=make_dataset(COUNT))
    return folder, result


def test_the_set_holds_all_that_a_later_model_needs(made: tuple[Path, CellResult]) -> None:
    folder, result = made
    about = json.loads((folder / "provenance.json").read_text())
    assert about["protocol"] == "stockpot-dynamic-set/1"
    assert about["classes"] == list(CLASSES)
    assert about["originals"] == COUNT
    with (folder / "labels.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    # The judge sees two of the four classes, and what it accepted is what it sees.
    assert {row["label"] for row in rows} < set(CLASSES)
    assert all(row["oracle_answer"] == row["label"] for row in rows)
    assert len(rows) == about["images"] == int(result.outcome("validated").sum()) < COUNT


def test_the_maker_gets_its_own_fmr_again_and_others_theirs(made: tuple[Path, CellResult]) -> None:
    folder, result = made
    (again,) = measure(make_classifier(Linear()), "published", data=str(folder))
    for metric in ("accuracy", "validation_rate", "perturbed_accuracy", "fmr", "matched_fmr"):
        assert again.score(metric).value == result.score(metric).value, metric
    assert "against this model itself" in again.convention
    later = make_classifier(Linear(1))
    later = type(later)(later.network, later.preprocess, later.classes,
                        type(later.origin)("other", "Toy", "1" * 64))  # fmt: skip
    (other,) = measure(later, "published", data=str(folder))
    assert other.score("fmr", maker="toy-model").value != result.score("fmr").value
    assert any("not against this model" in note for note in other.notes)


def test_a_changed_picture_is_named(made: tuple[Path, CellResult], tmp_path: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(made[0], tmp_path / "copy"))
    victim = sorted((folder / ".originals").rglob("*.png"))[3]
    picture = Image.open(victim)
    red, *rest = picture.getpixel((5, 5))
    picture.putpixel((5, 5), (red ^ 1, *rest))
    picture.save(victim)
    with pytest.raises(UserError, match=rf"{victim.name} was changed after it was published"):
        measure(make_classifier(Linear()), "published", data=str(folder))
    victim.unlink()
    with pytest.raises(UserError, match=r"not those of originals\.csv"):
        measure(make_classifier(Linear()), "published", data=str(folder))
    with pytest.raises(UserError, match="expected the folder of a published set"):
        measure(make_classifier(Linear()), "published", data=make_dataset(4))


def test_alpha_of_a_published_example() -> None:
    # Krippendorff's worked example of three coders and twelve units with missing answers: 0.691.
    units = [[1], [2, 2], [1, 1], [3, 3], [3, 3, 4], [4, 4, 4], [1, 3], [2, 2], [1, 1], [1, 1],
             [3, 3], [3, 3], [3, 4]]  # fmt: skip
    assert krippendorff_alpha(units) == pytest.approx(0.691, abs=5e-4)
    assert krippendorff_alpha([[1, 1], [2, 2]]) == 1.0
    # Two raters who always differ between two names, n pairs: 1 - 2 (2n - 1) / 2n = -1 + 1 / n.
    assert krippendorff_alpha([[1, 2]] * 8) == pytest.approx(-1 + 1 / 8)


def test_several_raters_share_a_judgement(made: tuple[Path, CellResult]) -> None:
    folder, _ = made
    with (folder / "review.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    wrong = {row["file"]: CLASSES[(CLASSES.index(row["label"]) + 1) % 4] for row in rows}
    first = rows[0]["file"]

    def answer(rater: int, row: dict[str, str]) -> str:
        if row["file"] == first:
            return "none" if rater else row["label"]
        return row["label"] if rater < 2 else wrong[row["file"]]

    for rater, name in enumerate(("review.csv", "review-ann.csv", "review-bob.csv")):
        with (folder / name).open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows({**row, "answer": answer(rater, row)} for row in rows)
    judge = oracles.get("human")(Setting(CLASSES), path=str(folder))
    pictures = [torch.tensor(list(Image.open(folder / row["file"]).tobytes())) for row in rows]
    pixels = torch.stack([each.view(16, 16, 3).permute(2, 0, 1) for each in pictures]) / 255
    shares = judge.judge(pixels)
    assert shares[0].tolist() == [0, 0, 0, 0]  # two of three see no class
    own = [CLASSES.index(row["label"]) for row in rows]
    assert torch.allclose(shares[range(1, len(rows)), own[1:]], torch.tensor(2 / 3))
    assert judge.note.startswith(f"3 raters judged {len(rows)} images, {len(rows)} of them more")
