"""Words that the commands cannot work with: pages, exports, searches, soups, and the rest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from kindly import unkind
from typer.testing import CliRunner

import commands  # noqa: F401 (keeps the commands, which the runner would build for every call)
from pico import CLASSES
from stockpot.cli.main import OF_THE_DISK, app
from stockpot.errors import UserError

NAMES = ("", "nosuch", "a\0b", "x" * 5000, "\x1b[2J", os.fsdecode(b"\xff"), "../nosuch")
"""Names of models, data and methods that are none."""


def invoked(words: tuple[object, ...]) -> None:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exit_code == 2:  # the parser's own words about an option
        assert "Traceback" not in result.output
        raise UserError(" ".join(result.output.split("Error:")[-1].split())[:300])
    problem = result.exception
    if isinstance(problem, OSError) and problem.errno in OF_THE_DISK:  # as `main` tells them
        raise UserError(f"{problem.strerror}")
    if problem is not None and not isinstance(problem, SystemExit):
        raise problem


@pytest.fixture(scope="module")
def place(pico_vit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    shutil.copytree(pico_vit, folder / "m")
    images = np.random.default_rng(0).integers(0, 256, (8, 16, 16, 3)).astype(np.uint8)
    classes = np.array(CLASSES)
    np.savez(folder / "toy.npz", images=images, labels=np.arange(8) % 4, classes=classes)
    invoked(("measure", folder / "m", "--data", folder / "toy.npz", "-d", "split=all",
             "--with", "clean", "-o", folder / "run"))  # fmt: skip
    (folder / "file").write_text("not a folder")
    (folder / "empty").mkdir()
    return folder


def pages(place: Path) -> list[tuple[object, ...]]:
    """Commands that read results."""
    run, out = place / "run", ("-o", place / "out")
    words: list[tuple[object, ...]] = []
    for command in ("view", "figures", "leaderboard", "report", "compare", "rescore"):
        ends = () if command in ("compare", "rescore") else out
        for name in (*NAMES[1:], "empty", "file", "toy.npz"):
            words.append((command, place / name, *ends))
    words += [("figures", run, *out, "--format", value) for value in ("", "gif", "\n")]
    words += [("view", run, *out, "--pictures", value) for value in ("-1", "x", "1e9")]
    words += [("view", run, *out, "--data", value) for value in NAMES[1:]]
    words += [("view", run, "-o", place / "file" / "x"), ("report", run, "-o", place / "file/x/y")]
    words += [("leaderboard", run, "-o", place / "file"), ("leaderboard", *out)]
    words += [("leaderboard", run, *out, "--index", value) for value in ("nosuch://x", "file")]
    words += [("leaderboard", place / "empty", "--check"), ("leaderboard", run, "--check")]
    words += [("push", place / name, "owner/name") for name in ("nosuch", "empty", "file")]
    words += [("push", run, value) for value in ("", "x", "a/b/c", "../x", "a b/c", "\x1b/x")]
    words += [("export", run, *out, "--to", value) for value in ("", "xml", "onnx", "torch-export")]
    words += [("export", place / "m", *out, "--to", value) for value in ("csv", "onxx", "\0")]
    words += [("results", "index", place / "empty" / "x"), ("results", "index", place / "file")]
    words += [("results", "query", "--index", place / "nosuch.db", "SELECT 1")]
    words += [("runs", "show", place / name) for name in ("nosuch", "empty", "file", "m")]
    words += [("runs", "prune", place / name) for name in ("nosuch", "empty", "file", "m")]
    words += [("sign", place / "nosuch", "--key", place / "k"), ("sign", run, "--key", place / "k")]
    words += [("sign", run, "--key", place / "file"), ("verify", run), ("verify", place / "file")]
    return words


def models(place: Path) -> list[tuple[object, ...]]:
    """Commands that ask models."""
    model, run = place / "m", ("-o", place / "out")
    data = ("--data", place / "toy.npz", "-d", "split=all")
    own = ("--data", place / "toy.npz", "--split", "all", "--no-test")
    two = (model, place / "m2")
    words: list[tuple[object, ...]] = []
    for name in NAMES:
        words.append(("card", name, *data, *run))
        words.append(("card", model, "--data", name, *run))
        words.append(("serve", name, "--port", "0"))
        words.append(("audit", name, *data, *run))
        words.append(("attack", name, *data))
        words.append(("attack", model, *data, "--method", name or "\0"))
        words.append(("corrupt", name, place / "out"))
        words.append(("corrupt", place / "toy.npz", place / "out", "--name", name))
        words.append(("season", name, *two, *data, *run))
        words.append(("season", "grid", model, name, *data, *run))
        words.append(("tune", name, *two, *own, *run))
        words.append(("tune", "average", model, name, *own, *run))
        words.append(("tune", "average", *two, *own, "--objective", name, *run))
        words.append(("choose", model, name, *data))
        words.append(("choose", model, model, *data, "--method", name))
        words.append(("transfer", model, name, *data))
        words.append(("transfer", model, model, *data, "--with", name))
        words.append(("init", place / "new.yaml", "--models", name, "--data", "icons",
                      "--fuse", "none", "--measures", "clean"))  # fmt: skip
        words.append(("init", place / "new.yaml", "--models", model, "--data", "icons",
                      "--fuse", "none", "--measures", name))  # fmt: skip
        words.append(("export", name, "--to", "onnx", *run))
        words.append(("explain", name, *data, *run))
    words += [("card", model, *data, *run, "--minutes", value) for value in ("0", "-1", "nan", "x")]
    words += [("serve", model, "--port", value) for value in ("-1", "70000", "x")]
    words += [("attack", model, *data, "--eps", value) for value in ("x", "nan", "-1", "0/0")]
    words += [("attack", model, *data, "--norm", value) for value in ("", "l3", "l1,l9")]
    words += [("attack", model, *data, "--images", place / name) for name in ("nosuch", "file")]
    words += [("audit", model, *data, "--budget", value) for value in ("-1", "x")]
    for severity in ("", "0", "6", "x", "5-1", "nan", "1-99999999"):
        words.append(("corrupt", place / "toy.npz", place / "out", "--severity", severity))
    words += [("season", "grid", *two, *data, *run, "--shots", value) for value in ("0", "-3", "9")]
    tuned = ("tune", "task_arithmetic", *two, "--base", model, *own, *run)
    for space in ("", "=", "scale", "scale=", "scale=x", "scale=1:0", "scale=nan:1", "nosuch=0:1"):
        words.append((*tuned, "--space", space))
    words += [("tune", "task_arithmetic", *two, "--base", model, *data, *run)]
    words += [(*tuned, "--trials", value) for value in ("0", "-1", "x")]
    words += [(*tuned, "--sampler", "nosuch"), (*tuned, "--prune", "nosuch")]
    words += [(*tuned, "--storage", value) for value in ("nosuch", "nosuch://x", "\0")]
    words += [("choose", model, model, *data, "--labels", place / "toy.npz")]
    words += [("choose", model, model, *data, "--sure", value) for value in ("2", "nan", "x")]
    words += [("convert", place / "file", "-o", place / "out"), ("convert", place / "toy.npz")]
    words += [("data", "split", "icons", "--protocol", value) for value in ("", "nosuch")]
    words += [("init", place / "file" / "x.yaml", "--models", model, "--data", "icons",
               "--fuse", "none", "--measures", "clean")]  # fmt: skip
    return words


@pytest.mark.parametrize("about", [pages, models])
def test_words_of_all_commands(
    place: Path, about: Callable[[Path], list[tuple[object, ...]]]
) -> None:
    """Each ends in one line, within seconds, with nothing written."""
    cases = about(place)
    shutil.copytree(place / "m", place / "m2", dirs_exist_ok=True)
    found = []
    for words in cases:
        if problem := unkind(partial(invoked, words), place):
            found.append(f"{[str(w)[-40:] for w in words]!r}: {problem}")
    assert not found, "\n".join(found)
    assert len(cases) > 90
