"""What a run may leave out; hooks that `conftest` hands to pytest."""

from __future__ import annotations

import re

import pytest
from _pytest.terminal import TerminalReporter

ALLOWED_SKIPS = (
    r"no chromium on the PATH",
    r"could not import '(cv2|datasets.arrow_dataset|mlflow|pandas|trackio|wandb)'",
    r"no PostgreSQL server is installed",
    r"needs to mount|does not let us mount",
    r"Ray starts no cluster here",
    r"the photographs are not installed",
    r"there is a GPU",
)
"""What a run may leave out: programs, packages and rights that the environment of `make` lacks.
Any other skip fails the run, so that a test cannot go missing without a word."""

_unexpected: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if not any(re.search(pattern, reason) for pattern in ALLOWED_SKIPS):
            _unexpected.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _unexpected and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    for line in _unexpected:
        terminalreporter.write_line(f"SKIPPED WITHOUT LEAVE {line}", red=True)
