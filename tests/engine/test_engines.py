"""Every engine: all jobs, errors as values, no job lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stockpot.engine import engines
from stockpot.errors import BadParameterError, UnknownNameError, UserError


def job(number: int) -> int:
    if number == 3:
        raise UnknownNameError("thing", "three", ["tree"])
    return number * number


@pytest.mark.parametrize("name", ["serial", "processes"])  # others: test_elsewhere.py
def test_outcomes(name: str) -> None:
    outcomes = {outcome.job: outcome for outcome in engines.get(name)().run(job, [1, 2, 3, 4])}
    assert {index: outcomes[index].value for index in (0, 1, 3)} == {0: 1, 1: 4, 3: 16}
    assert isinstance(outcomes[2].error, UserError)
    assert "Did you mean tree" in str(outcomes[2].error)


CALL = "engines.get('processes')(workers=1).run(str, [1])"


@pytest.mark.parametrize("guard", ["", 'if __name__ == "__main__": '])
def test_a_script_without_a_main_guard_is_told_so(guard: str, tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    work = "next({CALL})" if not guard else "check_main_guard()"  # no process need start for it
    script.write_text(
        "from stockpot.engine import engines\n"
        "from stockpot.engine.main_guard import check_main_guard\n"
        f"{guard}print({work.format(CALL=CALL)})\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    if guard:
        assert (ran.stdout, ran.returncode) == ("None\n", 0), ran.stderr
    else:
        assert "mine.py, line 3: with several processes" in ran.stderr
        assert '`if __name__ == "__main__":`' in ran.stderr
        assert "freeze_support" not in ran.stderr


def kill(number: int) -> int:
    if number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_killed_worker_costs_what_it_ran_alone() -> None:
    outcomes = list(engines.get("processes")(workers=1).run(kill, [0, 1, 2]))
    assert [outcome.value for outcome in outcomes] == [None, 1, 2]
    assert "was killed" in str(outcomes[0].error)


def asked(name: str) -> str | None:
    return os.environ.get(name)


def test_workers_see_the_variables_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of the server that they fork from, which may have been started long before."""
    engine = engines.get("processes")(workers=1)
    monkeypatch.setenv("STOCKPOT_CACHE", "/first")
    assert [outcome.value for outcome in engine.run(asked, ["STOCKPOT_CACHE"])] == ["/first"]
    monkeypatch.setenv("STOCKPOT_CACHE", "/second")
    assert [outcome.value for outcome in engine.run(asked, ["STOCKPOT_CACHE"])] == ["/second"]
    monkeypatch.delenv("STOCKPOT_CACHE")
    assert [outcome.value for outcome in engine.run(asked, ["STOCKPOT_CACHE"])] == [None]


def test_workers_are_counted() -> None:
    with pytest.raises(BadParameterError):
        engines.get("processes")(workers=-1)


def test_workers_keep_to_the_cores_they_may_use(monkeypatch) -> None:
    from stockpot.engine.cores import usable_cores

    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    assert 1 <= usable_cores() <= 3
