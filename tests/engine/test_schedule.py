"""Steps run after what they build on, stop at a deadline, and go on from what is there."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from stockpot.engine import Engine, engines
from stockpot.engine.schedule import Step, checked, schedule
from stockpot.errors import BadParameterError, UserError

DIAMOND = [("top", ("left", "right")), ("left", ("base",)), ("right", ("base",)), ("base", ())]


def write(job: tuple[Path, str, tuple[str, ...]]) -> str:
    """Leave a file; what it builds on must have left its own."""
    folder, name, parents = job
    if name == "broken":
        raise UserError("this one cannot be made")
    assert all((folder / parent).exists() for parent in parents)
    (folder / name).write_text(name)
    return name


def steps(folder: Path, graph: list[tuple[str, tuple[str, ...]]]) -> list[Step]:
    return [Step(name, parents, (folder, name, parents)) for name, parents in graph]


@pytest.mark.parametrize("name", ["serial", "processes"])
def test_parents_come_first_on_every_engine(name: str, tmp_path: Path) -> None:
    engine = engines.get(name)() if name == "serial" else engines.get(name)(workers=2)
    ends = list(schedule(write, steps(tmp_path, DIAMOND), engine=engine))
    assert [end.name for end in ends][::3] == ["base", "top"]
    assert all(end.state == "done" and end.value == end.name for end in ends)


def serial() -> Engine:
    return engines.get("serial")()


def test_a_failure_costs_only_what_builds_on_it(tmp_path: Path) -> None:
    graph = [("broken", ()), ("child", ("broken",)), ("grandchild", ("child",)), ("free", ())]
    ends = {end.name: end for end in schedule(write, steps(tmp_path, graph), engine=serial())}
    assert {name: end.state for name, end in ends.items()} == {
        "broken": "failed", "child": "blocked", "grandchild": "blocked", "free": "done",
    }  # fmt: skip
    assert "for lack of broken" in str(ends["child"].error)


def test_nothing_starts_after_the_deadline(tmp_path: Path) -> None:
    graph = [("a", ()), ("b", ()), ("c", ("b",))]
    ends: dict[str, str] = {}
    soon = time.monotonic() + 0.2

    def slow(job: tuple[Path, str, tuple[str, ...]]) -> str:
        time.sleep(0.3)
        return write(job)

    for end in schedule(slow, steps(tmp_path, graph), engine=serial(), deadline=soon):
        ends[end.name] = end.state
    assert ends == {"a": "done", "b": "late", "c": "blocked"}
    assert not (tmp_path / "b").exists()
    # What is there is not done again; the rest is.
    again = schedule(
        write, steps(tmp_path, graph), engine=serial(), deadline=math.inf,
        there=lambda name: (tmp_path / name).exists(),
    )  # fmt: skip
    assert {end.name: end.state for end in again} == {"a": "there", "b": "done", "c": "done"}


def test_circles_and_doubles_are_refused() -> None:
    with pytest.raises(BadParameterError, match="in a circle: a, b"):
        checked([Step("a", ("b",), 0), Step("b", ("a",), 0), Step("c", (), 0)])
    with pytest.raises(BadParameterError, match="same name"):
        list(schedule(print, [Step("a", (), 0)] * 2, engine=serial()))
    names = [step.name for step in checked([Step(n, p, 0) for n, p in DIAMOND])]
    assert names[0] == "base"
    assert names[-1] == "top"
    # What is no step is taken to be there.
    assert [end.state for end in schedule(str, [Step("a", ("zoo",), 0)], engine=serial())] == [
        "done"
    ]
