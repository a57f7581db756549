"""Types of parameters: what a room cannot use is refused before any work, in one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stockpot
from commands import invoke
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.attack.threat import parse_threats, threat
from stockpot.errors import BadParameterError
from stockpot.registries import registry
from stockpot.types import Count, ModelRef, spelled


@pytest.mark.parametrize(
    ("kind", "name", "params", "words"),
    [
        ("hardeners", "adversarial", {"norm": "l3"}, "norm"),
        ("hardeners", "adversarial", {"eps": "big"}, "fraction such as 8/255, got 'big'"),
        ("hardeners", "trades", {"eps": -1}, "at least 0"),
        ("hardeners", "adversarial", {"steps": -1}, "greater than or equal to 0"),
        ("hardeners", "sat", {"norms": "linf,l3"}, "expected linf, l2 or l1, got 'l3'"),
        ("hardeners", "sat", {"eps": "8/255,much,1"}, "got 'much'"),
        ("hardeners", "wise_kd", {"temperature": 0}, "greater than 0"),
        ("measures", "adversarial", {"norms": "l3"}, "expected linf, l2 or l1, got 'l3'"),
        ("measures", "adversarial", {"eps": "big"}, "got 'big'"),
        ("measures", "adversarial", {"protocol": "soup-cifar"}, "Did you mean soups-cifar"),
        ("measures", "adversarial", {"method": "apdg"}, "Did you mean apgd"),
        ("measures", "corruption", {"severities": 7}, "from 1 to 5, got 7"),
        ("measures", "corruption", {"severities": "0-5"}, "from 1 to 5, got '0-5'"),
        ("measures", "corruption", {"severities": [1, 9]}, "from 1 to 5"),
        ("measures", "corruption", {"severities": True}, "from 1 to 5"),
        ("measures", "corruption", {"corruptions": "frist"}, "Did you mean frost"),
        ("measures", "corruption", {"corruptions": ["fog", "gausian_noise"]}, "gaussian_noise"),
        ("measures", "corruption", {"profile": "mnist"}, "profile"),
        ("measures", "dynamic", {"generator": "vqgann"}, "Did you mean vqgan"),
        ("measures", "dynamic", {"oracle": "zero-shot"}, "Did you mean zero_shot"),
        ("measures", "dynamic", {"rule": "top5"}, "rule: expected argmax"),
        ("measures", "dynamic", {"budget": 0}, "greater than or equal to 1"),
        ("measures", "clean", {"top": 0}, "greater than or equal to 1"),
        ("generators", "mixture", {"severity": 6}, "1 to 5"),
        ("generators", "mixture", {"corruptions": ["benchmark"]}, "no corruption named"),
        ("seasoners", "grid", {"threats": "linf=8/255"}, "linf:8/255"),
        ("attacks", "square", {"steps": 0}, "greater than or equal to 1"),
        ("attacks", "apgd", {"rho": "nan"}, "finite"),
        ("fusers", "ties", {"density": float("nan")}, "finite"),
        ("fusers", "adamerging", {"lr": -1}, "greater than 0"),
        ("fusers", "learned_soup", {"epochs": 2**70}, "less than or equal to 100000"),
        ("seasoners", "gradient", {"penalty": "inf"}, "finite"),
        ("seasoners", "learned", {"steps": 2**70}, "less than or equal to 1000000000"),
        ("hardeners", "sat", {"eps": "8/255,1"}, "one eps for each norm"),
        ("measures", "adversarial", {"eps": "8/255"}, "one eps for each norm"),
    ],
)
def test_what_cannot_be_is_refused(kind: str, name: str, params: dict, words: str) -> None:
    with pytest.raises(BadParameterError) as problem:
        registry(kind).get(name).validate(params)
    text = str(problem.value)
    assert words in text
    assert "\n" not in text
    assert problem.value.parameter == next(iter(params))


@pytest.mark.parametrize(
    ("kind", "name", "params", "expected"),
    [
        ("measures", "corruption", {"severities": 3}, "3"),
        ("measures", "corruption", {"severities": "3"}, "3"),
        ("measures", "corruption", {"severities": "1-3"}, "1-3"),
        ("measures", "corruption", {"severities": [1, 2]}, (1, 2)),
        ("measures", "corruption", {"corruptions": "noise,fog"}, "noise,fog"),
        ("measures", "corruption", {"corruptions": ["fog"]}, ("fog",)),
        ("hardeners", "adversarial", {"eps": "8/255"}, "8/255"),
        ("hardeners", "adversarial", {"eps": 0.5}, 0.5),
        ("hardeners", "adversarial", {"eps": 0}, 0),
        ("measures", "adversarial", {"eps": ["4/255", 0.5], "norms": "linf,l2"}, ("4/255", 0.5)),
        ("measures", "adversarial", {"eps": 0.5, "norms": "l2"}, (0.5,)),
        ("measures", "adversarial", {"norms": ["linf", "l1"]}, ("linf", "l1")),
        ("measures", "adversarial", {"norms": "all"}, "all"),
        ("measures", "dynamic", {"oracle": "none"}, "none"),
    ],
)
def test_what_can_be_is_kept_as_it_was_written(
    kind: str, name: str, params: dict, expected: object
) -> None:
    key = next(iter(params))
    assert registry(kind).get(name).validate(params)[key] == expected


def test_one_severity_on_the_command_line() -> None:
    done = invoke(
        *("measure", "icons-resnet", "--data", "icons", "--limit", "4", "--with", "corruption"),
        *("-p", "severities=3", "-p", "corruptions=contrast", "-p", "baseline=none"),
    )
    assert done.exit_code == 0, done.output


def test_a_recipe_is_told_the_line(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        "version: 1\ndata: {d: {dataset: icons}}\nmodels: {m: {load: icons-resnet}}\n"
        "measure:\n  with:\n"
        "    - measure: corruption\n      data: d\n      severities: 7\n"
    )
    done = invoke("validate", recipe)
    assert done.exit_code == 1
    assert "from 1 to 5, got 7" in done.output
    assert f"{recipe}:8: measure.with" in done.output


def test_types_are_spelled_for_users() -> None:
    assert spelled(Count) == "int >= 1"
    assert spelled(ModelRef | None) == "model | none"
    assert spelled(dict[str, tuple[int, ...]]) == "dict[str, tuple[int, ...]]"


def test_types_need_no_torch() -> None:
    code = (
        "import sys, stockpot.types, stockpot.attack.threat, stockpot.corrupt.ranges as r; "
        "r.chosen_corruptions('fog'); "
        "import stockpot.dynamic.oracles, stockpot.dynamic.generators; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("lr: .nan", "finite"),
        ("lr: .inf", "finite"),
        ("momentum: -2", "greater than or equal to 0"),
        ("clip: .nan", "finite"),
        ("epochs: -1", "greater than or equal to 0"),
        (f"epochs: {2**70}", "less than or equal to 100000"),
        ("batch_size: 0", "greater than or equal to 1"),
        ("ema: 1", "less than 1"),
        ("eps: 8/255,1/255", "one eps for each norm"),
    ],
)
def test_a_recipe_is_refused_at_the_line_before_any_training(
    line: str, words: str, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "version: 1\n"
        "data:\n  icons: {dataset: icons}\n"
        "models:\n  start: {load: icons-resnet}\n"
        "harden:\n  trained:\n    method: sat\n    model: start\n    data: icons\n"
        f"    {line}\n"
    )
    result = invoke("validate", recipe)
    assert result.exit_code == 1
    assert "recipe.yaml:11:" in result.output
    assert words in " ".join(result.output.split())


def test_a_radius_keeps_its_digits() -> None:
    assert threat("l2", 0.123456789).eps == "0.123456789"
    assert threat("linf", 12.0).eps == "12"
    assert [str(each) for each in parse_threats(["l1"], [1 / 3]).members] == [f"l1 {1 / 3!r}"]


@pytest.mark.parametrize("seed", [-1, 2**63])
@pytest.mark.parametrize("verb", ["season", "choose", "tune", "measure"])
def test_a_seed_is_one_that_every_generator_takes(verb: str, seed: int, tmp_path: Path) -> None:
    models, data = {"a": make_classifier(ReadsLabel(4))}, make_dataset(8)
    models["b"] = models["a"]
    asked: dict[str, Callable[[], object]] = {
        "season": lambda: stockpot.season("uniform", models, data, shots=2, seed=seed),
        "choose": lambda: stockpot.choose(models, data=data, seed=seed),
        "tune": lambda: stockpot.tune(
            "ties", models, data, base=models["a"], out=tmp_path, seed=seed
        ),
        "measure": lambda: stockpot.measure(models, "clean", data=data, seed=seed),
    }
    with pytest.raises(BadParameterError, match="seed: expected a whole number from 0"):
        asked[verb]()
