"""Audits in results, on pages and on the command line; numbers without one say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from commands import invoke
from pico import CLASSES, make_classifier, make_dataset
from stockpot.datasets.load import load_dataset
from stockpot.measure.run import measure
from stockpot.models.classifier import Classifier
from stockpot.report.page import render
from stockpot.results.store import load_results
from stockpot.results.summary.notes import gathered_notes
from trust import cheats

QUICK = {"eps": "1/255", "budget": 150}
ATTACK = {"norms": "linf", "eps": "1/255", "steps": 2}


class Rows(nn.Module):
    """Right about every image of `make_dataset`, with a slope wherever one looks."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        seen = pixels[:, :, 0, :].mean(dim=(1, 2))
        return -((seen[:, None] - torch.arange(4, device=pixels.device) * 40 / 255) ** 2)


def models() -> dict[str, Classifier]:
    return {
        "honest": make_classifier(Rows()),
        "rounded": make_classifier(cheats.Rounds(Rows())),
    }


def test_a_result_under_attack_says_that_it_is_unaudited() -> None:
    results = measure(models(), {"adversarial": ATTACK}, data=make_dataset())
    for result in results:
        assert any(note.startswith("unaudited") for note in result.notes)
    assert "unaudited" in render(results, title="t")
    assert "Audits" not in render(results, title="t")


def test_an_audit_beside_it_says_what_it_is_worth(tmp_path: Path) -> None:
    both = {"adversarial": ATTACK, "audit": QUICK}
    measure(models(), both, data=make_dataset(), out=tmp_path)
    results = load_results(tmp_path)
    notes = gathered_notes(results)
    assert "honest: audited: cleared" in notes
    assert any(note.startswith("rounded: audited: convicted (gradient_exists") for note in notes)
    assert not any("unaudited" in note for note in notes)
    page = render(results, title="t")
    assert "honest on toy, linf 1/255: cleared" in page
    assert "rounded on toy, linf 1/255: convicted" in page
    assert page.count("<svg") >= 6, "accuracy and loss over radii, accuracy over steps"
    # Another model of the same name, or another name around the same weights, is not vouched for.
    for name, net in (("honest", nn.Sequential(Rows(), nn.Linear(4, 4))), ("new", Rows())):
        (lonely,) = measure(
            {name: make_classifier(net)}, {"adversarial": ATTACK}, data=make_dataset()
        )
        assert any("unaudited" in note for note in gathered_notes([lonely], results)), name


def test_the_cell_holds_findings_with_their_rules(tmp_path: Path) -> None:
    rounded = {"rounded": models()["rounded"]}
    (result,) = measure(rounded, {"audit": QUICK}, data=make_dataset(), out=tmp_path)
    (saved,) = load_results(tmp_path)
    assert saved == result
    found = {each.name: each for each in result.findings}
    assert found["gradient_exists"].count == found["gradient_exists"].of == 40
    assert "exact binomial" in found["gradient_exists"].rule
    assert {"gradient_exists"} <= {flag.name for flag in result.flags}
    curve = [score for score in result.scores if score.metric == "probe_accuracy"]
    assert next(s.condition["eps"] for s in curve if s.condition["curve"] == "eps") == 0


def test_the_command(tmp_path: Path) -> None:
    options = ["--data", "icons", "--limit", 3, "--eps", "4/255", "--budget", 150, "--seed", 1]
    done = invoke("audit", "icons-nominal", *options, "-o", tmp_path)
    assert done.exit_code == 0
    assert "suspicious" in done.output  # three images clear nobody
    assert "Audits" in (tmp_path / "audit.html").read_text(encoding="utf-8")
    done = invoke("audit", "icons-nominal", *options, "-o", tmp_path, "--json")
    assert json.loads(done.output.strip().splitlines()[-1])["findings"]
    assert "budget" in invoke("audit", "icons-nominal", "--data", "icons", "--budget", 5).output


@pytest.mark.parametrize("leak", [True, False], ids=["named after the label", "named at random"])
def test_no_model_sees_the_names_of_files(tmp_path: Path, leak: bool) -> None:
    from PIL import Image

    data = make_dataset(12)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3)).tolist()
    for row, (picture, label) in enumerate(zip(data.images.pixels, data.labels, strict=True)):
        name = f"{CLASSES[label]}-{row}" if leak else f"{order[row]:03d}"
        folder = tmp_path / CLASSES[label]
        folder.mkdir(exist_ok=True)
        Image.fromarray(picture.permute(1, 2, 0).numpy()).save(folder / f"{name}.png")
    seen: list[torch.Tensor] = []

    class Looks(nn.Module):
        def forward(self, *given: object) -> torch.Tensor:
            (pixels,) = given
            assert type(pixels) is torch.Tensor
            assert not vars(pixels)
            seen.append(pixels.cpu())
            return Rows()(pixels)

    photos = load_dataset(str(tmp_path))
    (result,) = measure({"m": make_classifier(Looks())}, "clean", data=photos)
    assert result.score("accuracy").value == 1
    # Whatever the files are called, the pictures are these and nothing else comes with them.
    shown = {(255 * picture).round().byte().numpy().tobytes() for part in seen for picture in part}
    assert shown == {picture.numpy().tobytes() for picture in data.images.pixels}
