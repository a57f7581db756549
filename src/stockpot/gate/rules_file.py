"""A file of rules: read and checked; every complaint is one line that names its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml

from stockpot.errors import BadParameterError, UserError, did_you_mean
from stockpot.foreign import YamlError, parse_yaml, read_text
from stockpot.gate.rule import Rule, parse_rule

Undecided = Literal["pass", "fail"]
UNDECIDED: tuple[Undecided, ...] = ("pass", "fail")
KEYS = ("version", "name", "confidence", "undecided", "measure", "rules")
RULE_KEYS = ("rule", "name", "data", "confidence")
VERSION = 1


class RulesError(UserError):
    """A file of rules that cannot be followed; the message starts with file and line."""


@dataclass(frozen=True)
class Rules:
    """Requirements, and what is said of all of them."""

    rules: tuple[Rule, ...]
    name: str = "requirements"
    undecided: Undecided = "fail"
    """What a rule means for the exit code that the images do not decide."""
    measure: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Parameters of measures: how to measure, and how results must have been measured."""
    file: str = ""


def load_rules(path: str | Path, measures: Sequence[str]) -> Rules:
    """Read a file of rules."""
    file = Path(path)
    try:
        file.stat()
    except FileNotFoundError:
        folder = file.parent if file.parent.is_dir() else Path()
        near = did_you_mean(file.name, [found.name for found in folder.glob("*.y*ml")])
        raise RulesError(f"no rules at {path}.{near}") from None
    except (OSError, ValueError):
        pass  # such as a name with a zero byte: reading says what is wrong
    return read_rules(read_text(file, RulesError), measures, str(path))


def read_rules(text: str, measures: Sequence[str], name: str = "rules") -> Rules:
    """Rules from the text of a file."""
    return _Reader(text, name, measures).rules()


class _Reader:
    def __init__(self, text: str, name: str, measures: Sequence[str]) -> None:
        self.name, self.measures = name, measures
        try:
            self.raw, node = parse_yaml(text, unique=True)
        except YamlError as problem:
            place = f"{problem.line}:{problem.column}"
            raise RulesError(f"{name}:{place}: not YAML: {problem}.") from problem
        if not isinstance(node, yaml.MappingNode):
            raise RulesError(f"{name}:1:1: expected a mapping with {', '.join(KEYS)}.")
        self.keys = {str(key.value): (key, value) for key, value in node.value}

    def rules(self) -> Rules:
        for key, (node, _) in self.keys.items():
            if key not in KEYS:
                self.fail(node, f"unknown key {key!r}.{did_you_mean(key, KEYS)} "
                                f"Known: {', '.join(KEYS)}.")  # fmt: skip
        if self.raw.get("version", VERSION) != VERSION:
            self.fail(self.keys["version"][1], f"expected version {VERSION}, got "
                                               f"{self.raw['version']!r}.")  # fmt: skip
        confidence = self.confidence(self.raw, self.keys)
        undecided = self.raw.get("undecided", "fail")
        if undecided not in UNDECIDED:
            self.fail(self.keys["undecided"][1], f"undecided: expected {' or '.join(UNDECIDED)}, "
                                                 f"got {undecided!r}.")  # fmt: skip
        return Rules(
            self.listed(confidence),
            str(self.raw.get("name", Rules.name)),
            undecided,
            self.parameters(),
            self.name,
        )

    def listed(self, confidence: float) -> tuple[Rule, ...]:
        if "rules" not in self.keys:
            raise RulesError(f"{self.name}:1:1: rules: expected a list of requirements, got none.")
        node = self.keys["rules"][1]
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            self.fail(node, "rules: expected a list of requirements.")
        return tuple(
            self.rule(item, raw, confidence)
            for item, raw in zip(node.value, self.raw["rules"], strict=True)
        )

    def rule(self, node: yaml.Node, raw: Any, confidence: float) -> Rule:
        about: dict[str, Any] = {}
        if isinstance(raw, dict) and isinstance(node, yaml.MappingNode):
            keys = {str(key.value): (key, value) for key, value in node.value}
            if "rule" in raw:
                for key, (place, _) in keys.items():
                    if key not in RULE_KEYS:
                        self.fail(place, f"unknown key {key!r}.{did_you_mean(key, RULE_KEYS)} "
                                         f"Known: {', '.join(RULE_KEYS)}.")  # fmt: skip
                confidence = self.confidence(raw, keys, confidence)
                about = {key: str(raw[key]) for key in ("name", "data") if key in raw}
                raw = raw["rule"]
        # `clean: no class loses ...` is a mapping of one key to YAML, and a sentence to people.
        if isinstance(raw, dict) and len(raw) == 1:
            key, value = next(iter(raw.items()))
            raw = f"{key}: {value}" if isinstance(value, str) else raw
        if not isinstance(raw, str):
            self.fail(node, f"expected a requirement such as `clean >= 0.9`, got {raw!r}.")
        try:
            found = parse_rule(raw, self.measures, confidence)
        except BadParameterError as problem:
            self.fail(node, str(problem))
        return replace(found, line=node.start_mark.line + 1, **about)

    def confidence(
        self, raw: Mapping[str, Any], keys: Mapping[str, Any], default: float = 0.95
    ) -> float:
        value = raw.get("confidence", default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.5 < value < 1:
            self.fail(keys["confidence"][1], "confidence: expected more than 0.5 and less than 1, "
                                             f"got {value!r}.")  # fmt: skip
        return float(value)

    def parameters(self) -> dict[str, Mapping[str, Any]]:
        raw = self.raw.get("measure") or {}
        if not isinstance(raw, dict):
            self.fail(self.keys["measure"][1], "measure: expected parameters by measure.")
        for name, values in raw.items():
            place = self.keys["measure"][1]
            if isinstance(place, yaml.MappingNode):
                place = next(key for key, _ in place.value if key.value == name)
            if name not in self.measures:
                near = did_you_mean(str(name), self.measures)
                self.fail(place, f"no measure named {name!r}.{near} `stockpot list measures`.")
            if not isinstance(values, dict):
                self.fail(place, f"{name}: expected parameters by name, got {values!r}.")
        return raw

    def fail(self, node: yaml.Node, message: str) -> NoReturn:
        mark = node.start_mark
        raise RulesError(f"{self.name}:{mark.line + 1}:{mark.column + 1}: {message}")
