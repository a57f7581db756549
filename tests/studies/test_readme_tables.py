"""The studies' pages follow from the data that is committed beside them.

`tables.py` of a study, run without a run folder, fills its page from that data. Run in a copy, it
must leave every file as it is: what a page says, in tables and in words, is what its data says.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stockpot.results.tables import filled

STUDIES = Path(__file__).parents[2] / "studies"
STUDIED = sorted(str(file.parent.relative_to(STUDIES)) for file in STUDIES.rglob("tables.py"))
PAGES = sorted(str(page.parent.relative_to(STUDIES)) for page in STUDIES.glob("**/README.md"))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(STUDIES, tmp_path_factory.mktemp("copy") / "studies"))


@pytest.fixture
def alone(copy: Path) -> Iterator[None]:
    """Scripts of several studies have the same names: none stays imported."""
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(copy)):
            del sys.modules[name]


def contents(folder: Path) -> dict[Path, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc")
    return {file.relative_to(folder): file.read_bytes() for file in files}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("study", STUDIED)
def test_a_page_says_what_its_data_says(
    study: str, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = copy / study / "tables.py"
    monkeypatch.syspath_prepend(str(script.parent))
    monkeypatch.setattr(sys, "argv", [str(script)])
    # A mark that nothing fills would keep what was typed after it: all are emptied first.
    marks = re.compile(r"(<!-- (?!end)[^>]*-->\n?).*?(<!-- end -->)", re.DOTALL)
    for page in script.parent.rglob("README.md"):
        if page.parent == script.parent or not page.with_name("tables.py").exists():
            emptied = marks.sub(r"\1\2", page.read_text(encoding="utf-8"))
            page.write_text(emptied, encoding="utf-8")
    runpy.run_path(str(script), run_name="__main__")
    assert contents(copy / study) == contents(STUDIES / study)


@pytest.mark.parametrize("study", PAGES)
def test_what_a_page_links_to_is_there(study: str) -> None:
    page = (STUDIES / study / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", page) if "://" not in link]
    assert links
    assert not [link for link in links if not (STUDIES / study / link).exists()]


def test_studies_are_alike_and_stand_on_the_package() -> None:
    known = {"study.py", "tables.py", "figures.py", "tuned.py"}
    # A run in stretches has more parts: what is trained, measured, chosen, kept and claimed.
    parts = ("answers", "chosen", "claims", "families", "measured", "rules", "stretch", "travel")
    more = {
        "robust_soups": {f"{name}.py" for name in parts},
        "robust_finetuning": {"claims.py", "experiments.py"},
        "clip_headroom": {f"{name}.py" for name in ("answers", "at_once", "claims", "experts",
                                                    "foundation", "merges", "tasks")},
        "clip_fusion": {f"{name}.py" for name in ("again", "pools_again", "searched", "untuned")},
        "enhancements": {"claims.py", "again.py"},
        "fmr": {f"{name}.py" for name in ("claims", "searches", "shown", "verdicts")},
        "fmr/photographs": {"judges.py", "people.py"},
        "adaptation": {"again.py"},
        "surface": {"again.py"},
        "unknowns": {"again.py", "claims.py", "measured.py"},
        "real_networks": {f"{name}.py" for name in ("attacks", "defences", "dynamic", "helped",
                                                    "kept", "moved", "rules")},
        "xrays": {"claims.py", "lungs.py", "pairs.py"},
    }  # fmt: skip
    for study in STUDIED:
        files = {file.name for file in (STUDIES / study).glob("*.py")}
        assert {"study.py", "tables.py"} <= files <= known | more.get(study, set())
        text = "".join((STUDIES / study / name).read_text(encoding="utf-8") for name in files)
        assert "stockpot.cli" not in text
        assert "matplotlib" not in text


def test_the_page_of_all_claims_says_what_the_studies_say() -> None:
    page = STUDIES / "README.md"
    spec = importlib.util.spec_from_file_location("gather", STUDIES / "gather.py")
    assert spec is not None
    assert spec.loader is not None
    gather = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(gather)
    made = gather.gathered() | gather.networks()
    text = page.read_text(encoding="utf-8")
    assert filled(text, made) == text
    front = (STUDIES.parent / "README.md").read_text(encoding="utf-8")
    assert filled(front, gather.networks()) == front
    verdicts = {row[2] for sources in gather.PAPERS.values() for s in sources
                for row in gather.claims(s)}  # fmt: skip
    assert verdicts <= set(gather.VERDICTS)
    for finding in ("F1:", "F10:", "M1:", "M7:", "G1 ", "G6 ", "regmean < adamerging"):
        assert f"| {finding}" in text


def test_sizes_that_were_computed_afterwards_follow_from_the_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(STUDIES))
    module = importlib.import_module("sizes")
    # n = (1.96 + 0.84)^2 d / e^2 images find e: with d = 0.1 and n = 1,000 it is 2.8 points.
    error = 100 * (0.1 / 1000) ** 0.5
    assert module.least((1 - 1.96 * error, 1 + 1.96 * error)) == pytest.approx(2.8, abs=0.01)
    for study, lines in module.PLANS.items():
        page = (STUDIES / study / "plan.md").read_text(encoding="utf-8")
        assert filled(page, {"size": module.sizes(lines())}) == page
        assert "## Size, computed afterwards" in page
