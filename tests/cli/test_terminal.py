"""What a person sees while a command runs, and what Ctrl-C leaves."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

import stockpot as package
from processes import error_of, start
from stockpot.cli.console import ImageProgress
from stockpot.cli.progress import duration, progress_line
from terminal import CTRL_C, Terminal


def test_training_shows_steps_and_loss_at_once_and_ctrl_c_saves_the_step(
    pico_vit: Path, toy_file: Path, tmp_path: Path
) -> None:
    words = ["harden", "nominal", pico_vit, "--data", toy_file, "-o", "out", "--device", "cpu"]
    words += ["-p", "epochs=100000", "-p", "batch_size=4"]
    shown = Terminal(*words, cwd=tmp_path)
    shown.until(r"nominal: loss \d\.\d+")
    # Named before the first step, and rate and time left are there while the first epoch lasts.
    assert re.search(r"on cpu, 1 threads?, fp32", shown.text)
    shown.press(CTRL_C)
    assert shown.end() == 130
    told = re.search(r"interrupted\. Step ([\d,]+) of [\d,]+ is saved\. To go on: (.*)", shown.text)
    assert told, shown.text[-1000:]
    assert told[2].startswith("stockpot harden nominal")
    (state,) = tmp_path.glob(".out.partial/*.pt")
    assert torch.load(state, weights_only=True)["step"] == int(told[1].replace(",", ""))
    assert "Traceback" not in shown.text


def test_finished_cells_are_a_table_on_a_terminal_and_lines_elsewhere(
    pico_vit: Path, toy_file: Path, tmp_path: Path
) -> None:
    words = ["measure", f"one={pico_vit}", "--data", toy_file, "--with", "clean,adversarial"]
    words += ["-p", "adversarial.norms=linf", "-p", "adversarial.eps=1/2550"]
    words += ["-p", "adversarial.steps=1000000", "-o", "run"]
    shown = Terminal(*words, cwd=tmp_path)
    shown.until(r"1 of 2 cells\s+model +measure +data +score +took\s+one +clean +\S+ +accuracy \d")
    shown.press(CTRL_C)
    assert shown.end() == 130
    assert "interrupted. 1 of 2 cells are saved in run. To go on: stockpot measure" in shown.text

    logged = start(*words[:-1], "log", cwd=tmp_path)
    while "[1/2]" not in logged.told() and logged.poll() is None:
        time.sleep(0.01)
    logged.send(signal.SIGTERM)
    done = logged.wait()
    assert "interrupted. 1 of 2 cells are saved in log." in error_of(done, 143)
    first, second, _ = done.stderr.splitlines()
    assert first == "on cpu, 1 threads, fp32"
    assert re.fullmatch(r"\[1/2\] one x clean x \S+: accuracy \d.*, \d+\.\d s", second)
    assert "\x1b" not in done.stderr


def test_progress_in_a_log_has_rate_and_time_left(capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """One tenth of the work in 11 seconds: 99 seconds are left at the same rate."""
    now = [0.0]
    monkeypatch.setattr("stockpot.cli.console.time.monotonic", lambda: now[0])
    with ImageProgress() as progress:
        progress("clean", 0, 1000)
        now[0] = 5.0
        progress("clean", 50, 1000)
        now[0] = 11.0
        progress("clean", 100, 1000)
    assert capsys.readouterr().err == "  clean: 100 of 1,000 (10 %), 9.1/s, 1 min 39 s left\n"
    assert progress_line(5, 10, 0, 1.0) == "5 of 10 (50 %)"
    assert [duration(s) for s in (0.84, 42.4, 200, 7500)] == [
        "0.8 s", "42 s", "3 min 20 s", "2 h 5 min",
    ]  # fmt: skip


def test_the_package_runs_as_a_module_and_knows_its_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stockpot", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"stockpot {package.__version__}\n"
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", package.__version__)
    assert "__version__" in dir(package)
