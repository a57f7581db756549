"""Rules as they are written: what they mean, and one line with the place where they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from stockpot.cli.main import app
from stockpot.gate.rule import parse_rule
from stockpot.gate.rules_file import RulesError, load_rules, read_rules
from stockpot.measure import measures

NAMES = measures.names()


@pytest.mark.parametrize(
    ("text", "kind", "target", "amount", "confidence"),
    [
        ("corruption.mean_accuracy >= 0.45", "at_least", "corruption.mean_accuracy", 0.45, 0.95),
        ("clean >= 90 % at 99 %", "at_least", "clean.accuracy", 0.9, 0.99),
        ("clean.ece<=.1", "at_most", "clean.ece", 0.1, 0.95),
        ("adversarial.union: not worse than baseline by 1 point at 95 %", "not_worse",
         "adversarial.union", 0.01, 0.95),
        ("adversarial: not  worse than the baseline", "not_worse", "adversarial.union_accuracy",
         0.0, 0.95),
        ("corruption.mce: not worse than baseline by 0.05", "not_worse", "corruption.mce", 0.05,
         0.95),
        ("corruption: better than baseline by 2.5 points", "better",
         "corruption.mean_corruption_accuracy", 0.025, 0.95),
        ("clean: no class loses more than 5 points", "each_class", "clean.accuracy", 0.05, 0.95),
        ("adversarial.robust[norm=linf, eps=8/255] >= 0.2", "at_least",
         "adversarial.robust[norm=linf,eps=8/255]", 0.2, 0.95),
    ],
)  # fmt: skip
def test_what_rules_mean(
    text: str, kind: str, target: str, amount: float, confidence: float
) -> None:
    rule = parse_rule(text, NAMES)
    assert (rule.kind, str(rule.target)) == (kind, target)
    assert (rule.amount, rule.confidence) == pytest.approx((amount, confidence))


def test_a_file_holds_rules_in_three_shapes() -> None:
    rules = read_rules(
        "version: 1\nname: release\nconfidence: 0.9\nundecided: pass\n"
        "measure: {corruption: {severities: 1-3}}\n"
        "rules:\n  - clean >= 0.5\n  - clean: no class loses more than 5 points\n"
        "  - {rule: clean >= 0.9, name: good, data: icons, confidence: 0.99}\n",
        NAMES,
    )
    assert (rules.name, rules.undecided) == ("release", "pass")
    assert rules.measure == {"corruption": {"severities": "1-3"}}
    assert [rule.confidence for rule in rules.rules] == [0.9, 0.9, 0.99]
    assert [rule.line for rule in rules.rules] == [7, 8, 9]
    assert (str(rules.rules[2]), rules.rules[2].data) == ("good", "icons")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules: [", r"r\.yaml:1:9: not YAML"),
        ("- clean >= 1", r"r\.yaml:1:1: expected a mapping with version"),
        ("version: 1", r"r\.yaml:1:1: rules: expected a list"),
        ("version: 2\nrules: [clean >= 1]", r"r\.yaml:1:10: expected version 1, got 2"),
        ("rule: [clean >= 1]", r"r\.yaml:1:1: unknown key 'rule'. Did you mean rules\?"),
        ("rules: []", r"r\.yaml:1:8: rules: expected a list"),
        ("undecided: maybe\nrules: [clean >= 1]", r"1:12: undecided: expected pass or fail, got"),
        ("confidence: 95\nrules: [clean >= 1]", r"1:13: confidence: expected more than 0.5"),
        ("rules:\n  - cleen >= 0.5", r"r\.yaml:2:5: no measure named 'cleen'. Did you mean clean"),
        ("rules:\n  - clean > 0.5", r"2:5: write >= instead of >"),
        ("rules:\n  - clean", r"2:5: a score alone asks nothing. Forms: SCORE >= NUMBER"),
        ("rules:\n  - clean: is nice", r"2:5: expected what the score must do, got 'is nice'"),
        ("rules:\n  - clean: no class loses more than 5", r"2:5: write 5 points or 5 %"),
        ("rules:\n  - clean >= 0.5 at 40 %", r"2:5: expected more than 50 % and less than 100 %"),
        ("rules:\n  - clean[size] >= 0.5", r"2:5: \[size\]: expected KEY=VALUE"),
        ("rules:\n  - 5", r"2:5: expected a requirement such as"),
        ("rules:\n  - {rule: clean >= 1, nome: x}", r"2:24: unknown key 'nome'. Did you mean name"),
        ("measure: {cleen: {}}\nrules: [clean >= 1]", r"1:11: no measure named 'cleen'"),
        ("measure: {clean: 3}\nrules: [clean >= 1]", r"1:11: clean: expected parameters by name"),
    ],
)
def test_a_wrong_file_is_one_line_with_its_place(text: str, message: str) -> None:
    with pytest.raises(RulesError, match=message) as caught:
        read_rules(text, NAMES, "r.yaml")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("rules: [clean >= 1]")
    with pytest.raises(RulesError, match=r"no rules at .*Did you mean rules.yaml"):
        load_rules(tmp_path / "rule.yaml", NAMES)


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_the_ready_workflows_ask_for_what_there_is(name: str) -> None:
    file = Path(__file__).parents[2] / "docs" / "ci" / name
    text = " ".join(str(yaml.safe_load(file.read_text(encoding="utf-8"))).split())
    command = text[text.index("stockpot check ") :].partition("'")[0].split()[2:]
    known = {option for each in get_command(app).commands["check"].params for option in each.opts}
    assert {word for word in command if word.startswith("-")} <= known
    assert command[0] == "rules.yaml"


def test_the_ready_rules_can_be_read() -> None:
    rules = load_rules(Path(__file__).parents[2] / "docs" / "ci" / "rules.yaml", NAMES)
    assert [rule.kind for rule in rules.rules] == [
        "at_least", "at_least", "not_worse", "each_condition",
    ]  # fmt: skip
