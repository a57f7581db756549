"""`stockpot check`: three outcomes, exit codes, and what it leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from torch import Tensor, nn

import stockpot
from commands import invoke
from hand_made import clean_cell
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.errors import UserError
from stockpot.gate.rules_file import read_rules
from stockpot.gate.written.junit import junit
from stockpot.gate.written.markdown import markdown
from stockpot.measure import measures
from stockpot.results.packed import pack_labels
from stockpot.results.schema import CellResult
from stockpot.results.store import ResultStore

HOSTILE = "<img src=x onerror=alert(1)>|@all`"


def cell(model: str, rate: float, n: int = 2000, *, lost: str = "") -> CellResult:
    """Clean answers of four classes; a model that has lost a class gets none of it right."""
    # The same image is as hard for everybody: what a worse model gets right a better one does too.
    hard = np.random.default_rng(3).random(n)
    labels = np.arange(n) % 4
    right = hard < rate
    if lost:
        right &= labels != "abcd".index(lost)
    packed, names = pack_labels(labels, list("abcd"))
    found = clean_cell(model, "x", right)
    return found.model_copy(update={"labels": packed, "label_names": names})


def rules(*lines: str, **about: str):
    said = "".join(f"{key}: {value}\n" for key, value in about.items())
    return read_rules(said + "rules:\n" + "".join(f"  - {line}\n" for line in lines),
                      measures.names(), "r.yaml")  # fmt: skip


def told(asked, mine: CellResult, base: CellResult | None = None) -> list[str]:
    found = stockpot.check(asked, mine, baseline=base)
    return [outcome.status for outcome in found.outcomes]


def test_each_kind_of_rule_holds_fails_or_is_not_decided() -> None:
    new, old = cell("new", 0.8), cell("old", 0.79)
    absolute = rules("clean >= 0.7", "clean >= 0.9", "clean >= 0.8", "clean <= 0.9")
    assert told(absolute, new) == ["holds", "fails", "not decided", "holds"]
    against = rules("clean: not worse than baseline by 1 point", "clean: better than baseline",
                    "clean: better than baseline by 5 points",
                    "clean: no class loses more than 5 points")  # fmt: skip
    assert told(against, new, old) == ["holds", "holds", "fails", "holds"]
    assert told(against, cell("worse", 0.7), old) == ["fails", "fails", "fails", "fails"]
    # One class is gone: overall that is 20 points, and it is said which class it is.
    gone = stockpot.check(against, cell("gone", 0.8, lost="c"), baseline=old).outcomes[3]
    assert (gone.status, gone.about) == ("fails", "class c")
    # Ten images of each class without a difference prove nothing.
    few = [cell(name, 0.8, 40) for name in ("new", "old")]
    assert told(against, *few)[3] == "not decided"


def test_what_cannot_be_compared_is_said_and_not_decided() -> None:
    asked = rules("clean: not worse than baseline", "corruption >= 0.5")
    found = stockpot.check(asked, cell("new", 0.8), baseline=cell("old", 0.8, 1000))
    assert "other images (2000 and 1000)" in found.outcomes[0].words
    assert found.outcomes[1].words == "corruption was not measured"
    assert not found.passed
    assert stockpot.check(asked, cell("new", 0.8), undecided="pass").passed
    with pytest.raises(UserError, match=r"r.yaml:2: clean.ecce: no such score .* Known: accuracy"):
        stockpot.check(rules("clean.ecce <= 0.1"), cell("new", 0.8))
    # What is said in brackets is never passed over.
    with pytest.raises(UserError, match=r"clean.accuracy\[class=a\]: no such score"):
        stockpot.check(rules("clean[class=a] >= 0.5"), cell("new", 0.8))
    for line, hint in (("clean >= 45", "45 % or 0.45"),
                       ("clean: not worse than baseline by 1", "1 points or 0.01")):  # fmt: skip
        with pytest.raises(UserError, match=f"r.yaml:2: .*; write {hint}"):
            stockpot.check(rules(line), cell("new", 0.8), baseline=cell("old", 0.8))
    two = [cell("new", 0.8), cell("old", 0.8)]
    with pytest.raises(UserError, match="expected results of one model, got those of new, old"):
        stockpot.check(asked, two)


def test_the_command_and_what_it_writes(tmp_path: Path) -> None:
    for made in (cell("new", 0.8), cell("old", 0.79), cell("worse", 0.7)):
        ResultStore(tmp_path / "run" / "results").save(made)
    file, out = tmp_path / "rules.yaml", tmp_path / "out"
    file.write_text("name: release\nrules:\n  - clean: not worse than baseline by 1 point\n"
                    "  - clean >= 0.8\n")  # fmt: skip
    run, base = tmp_path / "run", ("--baseline", f"{tmp_path / 'run'}:old")
    fine = invoke("check", file, f"{run}:new", *base, "-o", out, "--undecided", "pass")
    assert (fine.exit_code, "passed: 1 held, 1 not decided" in fine.output) == (0, True)
    assert invoke("check", file, f"{run}:new", *base).exit_code == 4
    suite = ElementTree.parse(out / "check.xml").getroot()[0]
    assert {key: suite.get(key) for key in ("tests", "failures", "skipped")} == {
        "tests": "2", "failures": "0", "skipped": "1",
    }  # fmt: skip
    assert ElementTree.parse(out / "check.svg").getroot().get("aria-label") == (
        "robustness: 1 of 2 held"
    )
    known = json.loads((out / "check.json").read_text())
    assert (known["format"], known["passed"]) == ("stockpot-check:1", True)
    assert known["rules"][0]["gain"] == pytest.approx(0.01, abs=0.005)
    bad = invoke("check", file, f"{run}:worse", *base, "--junit", tmp_path / "j.xml",
                 "--markdown", tmp_path / "c.md", "--badge", tmp_path / "b.svg")  # fmt: skip
    assert bad.exit_code == 4
    failures = ElementTree.parse(tmp_path / "j.xml").findall(".//failure")
    assert [failure.get("type") for failure in failures] == ["worse", "worse"]
    assert "❌ fails" in (tmp_path / "c.md").read_text()
    assert "2 of 2 failed" in (tmp_path / "b.svg").read_text()
    assert invoke("check", tmp_path / "no.yaml", run).exit_code == 1


def test_hostile_names_inject_nothing() -> None:
    asked = rules('{rule: clean >= 0.5, name: "' + HOSTILE + '"}')
    found = stockpot.check(asked, cell(HOSTILE + "\x00", 0.8))
    case = ElementTree.fromstring(junit(found)).find(".//testcase")
    assert case is not None
    assert case.get("name") == HOSTILE
    text = markdown(found)
    assert "<img" not in text
    assert "@all" not in text
    row = next(line for line in text.splitlines() if "holds |" in line)
    assert row.replace("\\|", "").count("|") == 5


class Blind(nn.Module):
    """Reads the label of all pictures but those of two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = ReadsLabel(4)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.inner(pixels) - pixels.new_tensor([0.0, 0.0, 1e6, 1e6])


def test_a_model_is_measured_until_all_is_decided() -> None:
    data = make_dataset(600)
    sees, blind = make_classifier(ReadsLabel(4)), make_classifier(Blind())
    asked = rules("clean >= 0.7", "clean: not worse than baseline by 5 points",
                  "clean: no class loses more than 20 points")  # fmt: skip
    blocks: list[int] = []
    good = stockpot.check(asked, model=sees, baseline_model=sees, data=data, block=20,
                          told=lambda images, _: blocks.append(images))  # fmt: skip
    assert [one.status for one in good.outcomes] == ["holds", "holds", "holds"]
    # Easy rules need few images; the record says which.
    assert good.outcomes[0].n < 60 < len(good.rows) < 600
    assert blocks[:3] == [20, 30, 45]
    assert np.cumsum(good.blocks).tolist() == blocks
    assert len(set(good.rows)) == len(good.rows) == blocks[-1]
    bad = stockpot.check(asked, model=blind, baseline_model=sees, data=data, block=20)
    assert [one.status for one in bad.outcomes] == ["fails", "fails", "fails"]
    assert len(bad.rows) < 200
    assert bad.outcomes[2].about in ("class cat", "class dog")
    assert bad.outcomes[2].high < -0.2
    # A baseline that was measured before gives the same decisions, image by image.
    base = stockpot.measure({"old": sees}, "clean", data=data)
    again = stockpot.check(asked, model=blind, baseline=base, data=data, block=20)
    assert again.rows == bad.rows
    assert [one.low for one in again.outcomes] == [one.low for one in bad.outcomes]
    with pytest.raises(UserError, match="the baseline has clean on other images"):
        stockpot.check(asked, model=sees, baseline=base, data=make_dataset(500))
    with pytest.raises(UserError, match=r"clean.ece is not a mean over images"):
        stockpot.check(rules("clean.ece <= 1"), model=sees, data=data)
    with pytest.raises(UserError, match=r"clean\.accuracy has no conditions"):
        stockpot.check(rules("clean: no condition loses more than 1 point"), model=sees,
                       baseline_model=sees, data=data)  # fmt: skip
    with pytest.raises(UserError, match="it is about icons, and --data is toy"):
        stockpot.check(rules("{rule: clean >= 0.5, data: icons}"), model=sees, data=data)
    with pytest.raises(UserError, match="no baseline to compare with"):
        stockpot.check(asked, model=sees, data=data)


def test_settings_that_are_known_by_content_must_be_told_again(pico_vit: Path) -> None:
    data, model = make_dataset(40), make_classifier(ReadsLabel(4))
    settings = {"corruptions": "contrast", "severities": "1", "baseline": str(pico_vit)}
    base = stockpot.measure({"old": model}, {"corruption": settings}, data=data)
    rule = "corruption.mean_accuracy: not worse than baseline by 60 points"
    with pytest.raises(UserError, match=r"with baseline known by its content.*`measure: corrupt"):
        stockpot.check(rules(rule), model=model, baseline=base, data=data)
    asked = rules(rule, measure=json.dumps({"corruption": settings}))
    found = stockpot.check(asked, model=model, baseline=base, data=data)
    assert [one.status for one in found.outcomes] == ["holds"]


def test_images_that_belong_together_come_and_count_together() -> None:
    plain = make_dataset(400)
    copies = tuple(str(row // 4) for row in range(400))
    grouped = replace(plain, columns={**plain.columns, "original": copies})
    asked, sees = rules("clean >= 0.7"), make_classifier(ReadsLabel(4))
    one, four = (stockpot.check(asked, model=sees, data=data, block=4)
                 for data in (plain, grouped))  # fmt: skip
    assert (one.passed, four.passed) == (True, True)
    assert len(four.rows) > 2.5 * len(one.rows)
    owners = np.array(four.rows) // 4
    assert all((owners == owner).sum() == 4 for owner in set(owners.tolist()))
