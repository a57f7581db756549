"""Results of many folders on boards: merged, never mixed, ranked as the intervals allow."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from commands import invoke
from hand_made import clean_cell
from stockpot.board.badges import badge
from stockpot.board.document import Document
from stockpot.board.site import Site, leaderboard
from stockpot.errors import UserError
from stockpot.results.schema import CellResult, Finding, Score
from stockpot.results.signing import new_key, sign
from stockpot.results.store import ResultStore
from stockpot.results.trust import UNAUDITED

N = 400


def cell(
    model: str = "a", share: float = 0.5, *, data: str = "toy", half: float = 0.05, **key: Any
) -> CellResult:
    """A clean accuracy with an interval of so many points to each side."""
    base = clean_cell(model, data, np.arange(N) < N * share)
    score = base.scores[0].model_copy(
        update={"ci_low": share - half, "ci_high": share + half, "ci_method": "wilson-95"}
    )
    # Without records of single images, only the intervals decide.
    own = base.key.model_copy(update={"model_fingerprint": f"{model}-weights", **key})
    update = {"key": own, "scores": [score], "outcomes": {}, "convention": "top1:all"}
    return base.model_copy(update=update)


def changed(one: CellResult, **update: Any) -> CellResult:
    return one.model_copy(update=update)


def run_folder(path: Path, *cells: CellResult) -> Path:
    store = ResultStore(path / "results")
    for one in cells:
        store.save(one)
    return path


def built(tmp_path: Path, *folders: Sequence[CellResult], **options: Any) -> Site:
    places = [run_folder(tmp_path / f"m{at}", *cells) for at, cells in enumerate(folders)]
    return leaderboard(places, tmp_path / "site", **options)


def test_places_are_what_the_intervals_leave_open(tmp_path: Path) -> None:
    # Half-widths of 5 points: surely apart from sqrt(50) = 7.07 points on.
    shares = {"a": 0.90, "b": 0.84, "c": 0.80, "d": 0.50}
    site = built(tmp_path, [cell(name, share) for name, share in shares.items()])
    (board,) = site.boards
    assert {row.label: row.rank for row in board.rows} == {
        "a": (1, 2),  # not surely better than b
        "b": (1, 3),  # nor b than c
        "c": (2, 3),
        "d": (4, 4),
    }


def test_less_is_better_where_it_is(tmp_path: Path) -> None:
    def error(name: str, value: float) -> CellResult:
        score = Score(metric="ece", value=value, n=N, higher_is_better=False)
        key = cell(name).key.model_copy(update={"measure": "calibration"})
        return changed(cell(name), key=key, scores=[score])

    (board,) = built(tmp_path, [error("a", 0.2), error("b", 0.1)]).boards
    assert [(row.label, row.rank) for row in board.rows] == [("b", (1, 1)), ("a", (2, 2))]


def test_folders_of_many_machines_become_one_board(tmp_path: Path) -> None:
    both = (
        run_folder(tmp_path / "all" / "x", cell("a")),
        run_folder(tmp_path / "all" / "y", cell("b")),
    )
    site = leaderboard([tmp_path / "all", *both], tmp_path / "site")  # given twice, counted once
    (board,) = site.boards
    assert [row.label for row in board.rows] == ["a", "b"]


def test_one_name_of_two_models_stays_two(tmp_path: Path) -> None:
    other = cell("a", 0.7, model_fingerprint="others")
    other = changed(other, model=other.model.model_copy(update={"fingerprint": "others"}))
    names = {model.name for model in built(tmp_path, [cell("a")], [other]).models}
    assert names == {"a (a)", "a (others)"}


def test_the_later_of_two_answers_counts_and_the_page_says_so(tmp_path: Path) -> None:
    old, new = cell("a", 0.5), cell("a", 0.75)
    new = changed(new, provenance=new.provenance.model_copy(update={"created": "2026-02-01"}))
    site = built(tmp_path, [new], [old])
    (row,) = site.boards[0].rows
    assert row.scores[0] is not None
    assert row.scores[0].value == 0.75
    page = (site.folder / "models" / f"{site.models[0].slug}.html").read_text()
    assert "answered twice, differently (accuracy 0.5 -&gt; 0.75)" in page


@pytest.mark.parametrize(
    "other",
    [
        changed(cell("b"), convention="top1:subset"),
        cell("b", params={"top": 3}),
        changed(cell("b"), data=cell("b").data.model_copy(update={"fingerprint": "other"})),
        changed(cell("b"), data=cell("b").data.model_copy(update={"n": 10})),
    ],
    ids=["convention", "params", "content", "images"],
)
def test_what_was_measured_otherwise_is_not_mixed_in(tmp_path: Path, other: CellResult) -> None:
    site = built(tmp_path, [cell("a")], [other])
    assert [[row.label for row in board.rows] for board in site.boards] in (
        [["a"], ["b"]],
        [["b"], ["a"]],
    )
    assert len({board.title for board in site.boards}) == 2
    page = (site.folder / "boards" / f"{site.boards[0].slug}.html").read_text()
    assert "boards of their own" in page
    with pytest.raises(UserError, match=r"2 conventions.*do not belong on one board"):
        leaderboard([tmp_path / "m0", tmp_path / "m1"], tmp_path / "two", one_convention=True)
    assert not (tmp_path / "two").exists()


def test_seeds_and_precisions_are_shown_and_not_hidden(tmp_path: Path) -> None:
    site = built(tmp_path, [cell("a"), cell("a", 0.6, precision="bf16"), cell("b")])
    (board,) = site.boards
    assert board.varies == {"precision": ["bf16", "fp32"]}
    assert sorted(row.label for row in board.rows) == [
        "a, precision bf16",
        "a, precision fp32",
        "b",
    ]


def test_each_threat_has_its_board(tmp_path: Path) -> None:
    def attacked(name: str, linf: float, l2: float) -> CellResult:
        scores = [Score(metric="accuracy", value=0.9, n=N)]
        for norm, eps, value in (("linf", "8/255", linf), ("l2", "0.5", l2)):
            condition: dict[str, Any] = {"norm": norm, "eps": eps}
            scores.append(Score(metric="robust_accuracy", value=value, n=N, condition=condition))
        scores.append(Score(metric="union_accuracy", value=min(linf, l2), n=N))
        key = cell(name).key.model_copy(update={"measure": "adversarial"})
        return changed(cell(name), key=key, scores=scores)

    site = built(tmp_path, [attacked("a", 0.5, 0.2), attacked("b", 0.3, 0.4)])
    first = {board.threat: board.rows[0].label for board in site.boards}
    assert first == {"linf 8/255": "a", "l2 0.5": "b", "union": "b"}


def test_the_document_and_the_csv_say_the_same(tmp_path: Path) -> None:
    site = built(tmp_path, [cell("a", 0.5)], [cell("b", 0.9), cell("b", 0.1, data="other")])
    text = (site.folder / "leaderboard.json").read_text()
    document = Document.model_validate_json(text)
    schema = json.loads((site.folder / "leaderboard.schema.json").read_text())
    assert set(json.loads(text)) == set(schema["properties"])
    told = {
        (board.data.name, row.label, board.columns[at].metric): score.value
        for board in document.boards
        for row in board.rows
        for at, score in enumerate(row.scores)
        if score
    }
    with (site.folder / document.results).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert told == {(r["data"], r["model"], r["metric"]): float(r["value"]) for r in rows}
    assert len(told) == 3
    assert yaml.safe_load((site.folder / "CITATION.cff").read_text())["version"] == "1"


def test_versions_are_numbered_and_never_change(tmp_path: Path) -> None:
    first = built(tmp_path, [cell("a")])
    csv_1 = first.folder / "csv" / "results-v1.csv"
    held = csv_1.read_bytes()
    assert (
        built(tmp_path, [cell("a")]).version == first.version
    )  # the same results, the same version
    run_folder(tmp_path / "m1", cell("b"))
    again = leaderboard([tmp_path / "m0", tmp_path / "m1"], first.folder)
    assert again.version.version == 2
    assert csv_1.read_bytes() == held
    # A model that is gone has no page any more.
    leaderboard([tmp_path / "m1"], first.folder)
    assert [path.name[0] for path in (first.folder / "models").iterdir()] == ["b"]
    csv_1.write_bytes(held + b"more\n")
    with pytest.raises(UserError, match=r"results-v1\.csv is not what version 1 was"):
        leaderboard([tmp_path / "m0"], first.folder)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="holds something else"):
        built(tmp_path, [cell("a")])
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["thesis.tex"]


def test_badges_are_svg_whatever_names_hold() -> None:
    root = ElementTree.fromstring(badge('<script>"&', "51.0 %", good=True))
    assert "".join(root.itertext()).count('<script>"&') == 2
    assert not [element for element in root.iter() if element.tag.endswith("script")]


# Submissions.

FORM = {"submission": 1, "authors": ["Ada"], "models": {"a": {"paper": "https://example.org"}}}


def recorded(model: str = "a") -> CellResult:
    """With the record of each image, and named as its measure would."""
    base = clean_cell(model, "toy", np.arange(N) < N * 0.75)
    key = base.key.model_copy(update={"model_fingerprint": "w"})
    return changed(base, key=key)


def audit_of(one: CellResult, verdict: Any) -> CellResult:
    finding = Finding(name="noise", verdict=verdict, count=0, of=10, rule="none", words="seen")
    key = one.key.model_copy(update={"measure": "audit"})
    score = Score(metric="audited_accuracy", value=0.5, n=N)
    return changed(one, key=key, findings=[finding], scores=[score], outcomes={}, notes=[])


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    """All in order, and signed."""
    one = recorded()
    attacked = changed(
        one,
        key=one.key.model_copy(update={"measure": "adversarial"}),
        notes=[UNAUDITED],
        outcomes={},
    )
    folder = run_folder(tmp_path / "mine", one, attacked, audit_of(one, "cleared"))
    (folder / "submission.yaml").write_text(yaml.safe_dump(FORM))
    new_key(tmp_path / "me.pem")
    sign(folder, tmp_path / "me.pem")
    return folder


def results_of(folder: Path, measure: str) -> Path:
    (found,) = (folder / "results").glob(f"*--{measure}--*.json")
    return found


def test_a_good_submission_passes_and_is_shown(submission: Path, tmp_path: Path) -> None:
    done = invoke("leaderboard", "--check", submission)
    assert done.exit_code == 0, done.output
    assert "signature holds" in done.output
    assert "broken" not in done.output
    site = leaderboard([submission], tmp_path / "site")
    page = (site.folder / "models" / f"{site.models[0].slug}.html").read_text()
    assert "audit: cleared; signed: yes" in page
    assert "unaudited" not in page
    assert "Ada" in page


def forged(folder: Path) -> None:
    path = results_of(folder, "clean")
    path.write_text(
        path.read_text()
        .replace('"value":0.75', '"value":0.95')
        .replace('"value": 0.75', '"value": 0.95')
    )


def renamed(folder: Path) -> None:
    path = results_of(folder, "clean")
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 7'))


def unaudited(folder: Path) -> None:
    results_of(folder, "audit").unlink()


def convicted(folder: Path) -> None:
    ResultStore(folder / "results").save(audit_of(recorded(), "convicted"))


def newer(folder: Path) -> None:
    path = results_of(folder, "clean")
    path.write_text(path.read_text().replace('"schema_version": 2', '"schema_version": 9'))


def nameless(folder: Path) -> None:
    (folder / "submission.yaml").write_text("submission: 1\nauthors: []\n")


def scripted(folder: Path) -> None:
    form = {**FORM, "models": {"a": {"paper": "javascript:alert(1)"}}}
    (folder / "submission.yaml").write_text(yaml.safe_dump(form))


def unsigned(folder: Path) -> None:
    (folder / "signature.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (forged, "scores from outcomes broken: a accuracy: 0.9500 is said, 0.7500 is recorded"),
        (renamed, "hashes of questions broken"),
        (unaudited, "audit broken: attacked and not audited: a"),
        (convicted, "audit broken: a is convicted"),
        (newer, "protocol version broken"),
        (nameless, "form broken"),
        (scripted, "form broken"),
        (unsigned, "signature broken"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_what_is_wrong_with_a_submission_is_named(submission: Path, spoil: Any, rule: str) -> None:
    spoil(submission)
    done = invoke("leaderboard", "--check", submission)
    assert done.exit_code == 1
    assert rule in done.output
    assert "signature broken" in done.output  # whatever was changed, it was signed otherwise


def test_a_false_signature_stops_the_build(submission: Path, tmp_path: Path) -> None:
    forged(submission)
    with pytest.raises(UserError, match="was changed after it was signed"):
        leaderboard([submission], tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_the_template_can_be_followed(tmp_path: Path) -> None:
    from stockpot.board.submission import read_submission
    from stockpot.recipe import load_recipe
    from stockpot.run.check import check

    done = invoke("leaderboard", "--template", tmp_path / "new")
    assert done.exit_code == 0
    form = read_submission(tmp_path / "new")
    recipe = load_recipe(tmp_path / "new" / "recipe.yaml")
    check(recipe)
    assert form is not None
    assert set(form.models) == set(recipe.recipe.models)
    assert (
        f"stockpot leaderboard --check {tmp_path / 'new'}"
        in (tmp_path / "new/README.md").read_text()
    )
    assert (
        invoke("leaderboard", "--template", tmp_path / "new").exit_code == 1
    )  # nothing is overwritten
