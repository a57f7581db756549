"""Sweeps and similarity in recipes: one entry stands for several models."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import invoke
from dual_encoders import make_clip, make_expert
from stockpot.recipe import RecipeError, RecipeFile
from stockpot.recipe.variants import write_out
from stockpot.results.store import load_results
from stockpot.run.check import check

RECIPE = """version: 1
data:
  icons: {dataset: icons, limit: 6}
  noto: {dataset: icons, style: noto, limit: 6}
models:
  base: {load: BASE}
  a: {load: A}
  b: {load: B}
fuse:
  ta:
    method: task_arithmetic
    models: [a, b]
    base: base
    sweep: {scale: [0.1, 0.5, 1.0]}
similarity: {base: base, models: [a, b]}
measure:
  models: [base, ta]
  with: [{measure: clean, data: icons}, {measure: clean, data: noto}]
report: {title: A sweep}
"""


def test_a_sweep_is_written_out() -> None:
    recipe = RecipeFile(RECIPE, "r.yaml").recipe
    names = ["ta-scale=0.1", "ta-scale=0.5", "ta-scale=1.0"]
    assert list(recipe.fuse) == names
    assert [recipe.fuse[name].params for name in names] == [{"scale": s} for s in (0.1, 0.5, 1.0)]
    assert recipe.measure is not None
    assert recipe.measure.models == ["base", *names]
    assert recipe.variant(names[0]).sweep == {"scale": 0.1}
    plain = {"version": 1, "models": {}}
    assert write_out(plain).recipe == plain


def test_complaints_name_the_line_of_the_entry() -> None:
    wrong = RECIPE.replace("sweep: {scale: [0.1, 0.5, 1.0]}", "sweep: {scales: [0.1]}")
    for place in ("BASE", "A", "B"):
        wrong = wrong.replace(f"load: {place}}}", "load: icons-vit}")
    with pytest.raises(RecipeError, match=r"r\.yaml:10: fuse\.ta-scales=0\.1.*scales"):
        check(RecipeFile(wrong, "r.yaml"))
    with pytest.raises(RecipeError, match=r"r\.yaml:15: similarity.base: no model named 'bse'"):
        RecipeFile(RECIPE.replace("similarity: {base: base", "similarity: {base: bse"), "r.yaml")


def test_a_run_draws_the_curve_and_the_cosines(tmp_path: Path) -> None:
    base = make_clip(tmp_path / "base")
    text = RECIPE.replace("BASE", str(base))
    for seed, name in enumerate("AB"):
        folder = make_expert(base, tmp_path / name, seed=seed)
        text = text.replace(f"load: {name}", f"load: {folder}")
    (tmp_path / "r.yaml").write_text(text)
    out = tmp_path / "run"
    result = invoke("run", tmp_path / "r.yaml", "-o", out)
    assert result.exit_code == 0, result.output
    keys = [cell.key for cell in load_results(out)]
    assert {(key.model, key.entry, key.sweep.get("scale")) for key in keys} == {
        ("base", "base", None), ("ta-scale=0.1", "ta", 0.1), ("ta-scale=0.5", "ta", 0.5),
        ("ta-scale=1.0", "ta", 1.0),
    }  # fmt: skip
    rows = (out / "similarity.csv").read_text().splitlines()
    assert rows[0] == ",a,b"
    assert float(rows[1].split(",")[1]) == pytest.approx(1.0)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "ta by scale" in page
    assert "data:image/svg+xml;base64," in page
    assert "mean over tasks" in page or "the mean is over tasks" in page
