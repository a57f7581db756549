"""The run on photographs at toy size, from training to tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from stockpot.results.packed import pack_bits, unpack_bits

Part = Callable[[str, str], Any]


def tiny(classes: int, *, start: bool) -> tuple[nn.Module, dict[str, Any]]:
    """In place of a network from a package."""
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, classes))
    return pooled, {}


@pytest.mark.usefixtures("little_sets")
def test_a_toy_run_goes_from_training_to_tables(
    part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = part("fmr/photographs", "tables")
    import judges
    import searches
    import study

    monkeypatch.setattr(judges, "NETWORKS", {"first": tiny, "second": tiny})
    monkeypatch.setattr(study, "KINDS", {name: study.KINDS[name] for name in ("plain", "pgd")})
    monkeypatch.setattr(tables, "KINDS", study.KINDS)
    size = study.Size(
        images=8, asked=10, pilot=4, budget=3, steps=2, channels=4, epochs=1,
        tested=range(16), held=range(16, 22),
        judging={"first": range(16), "second": range(16)},
        learned={"vqgan": range(16), "kl": range(16)},
    )  # fmt: skip
    toy = study.Study(tmp_path, size)
    toy.tries = {"vqgan": (0.1,), "kl": (0.1,)}
    toy.trained()
    toy.measured(float("inf"))
    cells = {path.stem for path in (tmp_path / "cells").glob("*.json")}
    assert len(cells) == 2 + 2 * 3 * 2 + 2 + 1
    kept = (tmp_path / "cells" / "clean.json").stat().st_mtime_ns
    toy.measured(float("inf"))
    assert (tmp_path / "cells" / "clean.json").stat().st_mtime_ns == kept  # nothing was done again

    outcomes = json.loads(json.dumps(tables.gathered(tmp_path, size)))
    known = searches.cell_name("pgd", 2, "kl")
    cell = outcomes["data"]["cifar10"]["cells"][known]
    seen = {key: unpack_bits(cell[key], 8) for key in ("validated", "perturbed")}
    assert not (seen["perturbed"] & ~seen["validated"]).any()
    # All images count, so that no share of none is asked for.
    for name, cell in outcomes["data"]["cifar10"]["cells"].items():
        if name.startswith(("main", "second")):
            cell |= {key: pack_bits(np.ones(8, bool)) for key in ("validated", "perturbed",
                                                                  "correct")}  # fmt: skip
    made = tables.from_data(outcomes)
    assert {line.split("|")[1].split()[0] for line in made["claims"].splitlines()[2:]} == {
        *("G1", "G2", "G3", "G5", "G6", "O1", "O2")
    }
    assert "perturbation first" in made["parts"]


def test_no_two_networks_and_no_two_roles_share_images(part: Part) -> None:
    study = part("fmr/photographs", "study")
    size = study.Size()
    roles = [size.tested, *size.judging.values(), *size.learned.values(), size.held]
    rows = [row for role in roles for row in role]
    assert len(rows) == len(set(rows))
    assert max(rows) < 50_000


def test_what_another_process_makes_is_left_alone(part: Part, tmp_path: Path) -> None:
    searches = part("fmr", "searches")
    file, made = tmp_path / "cell.json", []
    with searches.held_alone(tmp_path / ".cell.json.making", file):
        assert not searches.alone(file, lambda: made.append("twice"))
    assert searches.alone(file, lambda: file.write_text("{}"))
    assert searches.alone(file, lambda: made.append("again"))
    assert not made
