"""`--profile FILE`: every command that works for a while says where its time went."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import invoke
from stockpot.cli.commands import _UNTIMED, Commands
from stockpot.results.store import load_results


def seconds(trace: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads(trace.read_text())["otherData"]["seconds"]
    return found


def options(command: Any) -> dict[str, Any]:
    return {option.name: option for option in command.params}


@pytest.mark.parametrize("name", Commands())
def test_every_command_that_works_for_a_while_takes_it(name: str) -> None:
    command = Commands()[name]
    if hasattr(command, "commands"):
        return  # a group; of those `results` are told below
    metavar = getattr(options(command).get("profile"), "metavar", None)
    assert (metavar == "FILE") is (name not in _UNTIMED)


def test_the_profile_of_corruptions_is_that_of_their_constants() -> None:
    assert "imagenet" in invoke("corrupt", "--help").output.partition("--profile")[2][:200]


def test_training_tells_the_search_for_worst_images_apart(tmp_path: Path) -> None:
    trace, out = tmp_path / "trace.json", tmp_path / "trained"
    done = invoke(
        "harden", "adversarial", "icons-resnet", "--data", "icons", "-o", out, "--profile", trace,
        *("-p", "epochs=1", "-p", "steps=2", "-p", "batch_size=64", "-p", "precision=fp32"),
        *("-d", "limit=200", "-p", "holdout=0.5"),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    spent = seconds(trace)
    assert {"load", "learn", "attack", "judge", "write"} <= set(spent)
    details = json.loads((out / "stockpot.json").read_text())["details"]
    assert details["stages"]["attack"] == pytest.approx(spent["attack"], abs=0.02)
    assert sum(details["stages"].values()) == pytest.approx(details["seconds"], abs=0.02)
    (line,) = [row for row in (out / "README.md").read_text().splitlines() if "seconds:" in row]
    assert f"attack {details['stages']['attack']}" in line


def test_pages_and_indices_tell_theirs(tmp_path: Path) -> None:
    run, trace = tmp_path / "run", tmp_path / "trace.json"
    asked = ("icons-resnet", "--data", "icons", "--limit", "4", "--log-samples")
    assert invoke("measure", *asked, "-o", run).exit_code == 0
    for words, stages in (
        (("leaderboard", run, "-o", tmp_path / "site"), {"load", "score", "make", "write"}),
        (("view", run, "-o", tmp_path / "view"), {"load", "write"}),
        (("results", "index", run, "--index", tmp_path / "index.db"), {"load", "write"}),
        (("results", "query", "n=4", "--index", tmp_path / "index.db"), {"load"}),
    ):
        done = invoke(*words, "--profile", trace)
        assert done.exit_code == 0, done.output
        assert stages <= set(seconds(trace)), words
        trace.unlink()


def test_an_attack_is_searched_and_decided(tmp_path: Path) -> None:
    asked = ("icons-linf", "--data", "icons", "--limit", "4", "-p", "steps=3")
    done = invoke("attack", *asked, "--log-samples", tmp_path / "run")
    assert done.exit_code == 0, done.output
    (cell,) = load_results(tmp_path / "run")
    assert cell.cost.stages["attack"] > 0
    assert cell.cost.stages["forward"] > 0


def test_a_command_that_fails_has_told_its_time(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = invoke("leaderboard", tmp_path / "nothing", "-o", tmp_path / "site", "--profile", trace)
    assert done.exit_code == 1
    assert seconds(trace)
