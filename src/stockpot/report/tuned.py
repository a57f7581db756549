"""The page of a search: every trial, the front of its objectives, the choice, and how to make each.

It is written anew as trials finish, and while the search goes on it looks for its next version.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from stockpot.charts import Axes, Canvas, ticks
from stockpot.files import write_atomic
from stockpot.report.design import Cell, Column, render_page, table
from stockpot.report.sections.stages import in_words
from stockpot.results.tuning import TunedObjective, TunedTrial, TuneResult

_STATES = {"complete": "", "pruned": "given up early", "failed": "failed"}


class Told(NamedTuple):
    """The choice in words."""

    objective: str
    validation: str
    selection: str
    test: str
    gain: str


def write_tune_page(result: TuneResult, out: Path) -> Path:
    """Render and write the page; an old one is replaced in one step."""
    write_atomic(out, render_tuning(result))
    return out


def render_tuning(result: TuneResult) -> str:
    """The page as text; the same search gives the same page."""
    done = [one for one in result.trials if one.state == "complete"]
    count = f"{len(result.trials)} of {result.wanted} trials"
    left, spent = len(result.trials) - len(done), in_words(result.stages)
    facts = [count, f"{left} given up or failed" if left else "",
             f"{result.images:,} validation images", f"sampler {result.sampler}",
             f"prune {result.prune}", f"seed {result.seed}",
             f"time: {spent}" if spent else ""]  # fmt: skip
    names = ", ".join(one.name for one in result.objectives)
    chosen = None if result.chosen is None else result.trial(result.chosen)
    return render_page(
        "tune.html.j2",
        title=f"Search: {', '.join(result.methods)}",
        subtitle=f"{names}, on {', '.join(result.data)}",
        facts=" · ".join(fact for fact in facts if fact),
        live=not result.finished,
        charts=_charts(result, done),
        chosen=chosen,
        told=[] if chosen is None else [_told(result, one, chosen) for one in result.objectives],
        looks=result.test_looks,
        knobs=table("knobs", ["knob", "range"], list(result.knobs.items()), search=False),
        front=_trials("front", result, [one for one in done if one.number in result.front]),
        trials=_trials("trials", result, result.trials),
        several=len(result.objectives) > 1,
        notes=result.notes,
    )


def _written(one: TunedObjective, value: float) -> str:
    return f"{100 * value:.1f} %" if one.share else f"{value:.4g}"


def _told(result: TuneResult, one: TunedObjective, chosen: TunedTrial) -> Told:
    found, score = result.selection.get(one.name), result.test.get(one.name)
    said, test, gain = "", "", ""
    if found is not None:
        said = (
            f"{_written(one, found.value)} [{_written(one, found.low)}, "
            f"{_written(one, found.high)}]; {100 * found.share:.0f} % of draws choose this trial"
        )
    if score is not None:
        test = _written(one, score.value)
        if score.low is not None and score.high is not None:
            test += f" [{_written(one, score.low)}, {_written(one, score.high)}]"
        if score.gain is not None and score.default is not None:
            gain = f"{100 * score.gain:+.1f}" if one.share else f"{score.gain:+.4g}"
            if score.gain_low is not None and score.gain_high is not None:
                gain += f" [{100 * score.gain_low:+.1f}, {100 * score.gain_high:+.1f}]"
            gain += f" over the defaults' {_written(one, score.default)}"
    return Told(one.name, _written(one, chosen.values[one.name]), said, test, gain)


def _charts(result: TuneResult, done: Sequence[TunedTrial]) -> list[Markup]:
    if not done:
        return []
    if len(result.objectives) == 1:
        return [Markup(_progress(result, done).inline())]
    return [
        Markup(_front(result, done, a, b).inline()) for a, b in combinations(result.objectives, 2)
    ]


def _reach(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.01
    return low - room, high + room


def _progress(result: TuneResult, done: Sequence[TunedTrial]) -> Canvas:
    """Every trial by its number, and the best so far."""
    one = result.objectives[0]
    canvas = Canvas(760, 380, f"{one.name} of {len(done)} trials, and the best so far")
    values = [trial.values[one.name] for trial in done]
    last = max(trial.number for trial in done)
    axes = Axes(canvas, (0.0, float(max(last, 1))), _reach(values))
    marks = [(v, f"{v:g}") for v in ticks(0, max(last, 1)) if v == int(v)]
    axes.frame("trial", f"{one.name}{' (%)' if one.share else ''}", marks,
               None if one.share else "{:g}".format)  # fmt: skip
    best, line = None, []
    for trial in sorted(done, key=lambda t: t.number):
        value = trial.values[one.name]
        if best is None or (value > best if one.higher else value < best):
            if best is not None:
                line.append(axes.at(trial.number, best))
            best = value
            line.append(axes.at(trial.number, best))
    if best is not None:
        line.append(axes.at(last, best))
    canvas.path(line, "accent-soft", width=2)
    for trial in done:
        mine = trial.number == result.chosen
        canvas.dot(axes.at(trial.number, trial.values[one.name]), "accent" if mine else "soft",
                   6 if mine else 3.5, _note(result, trial))  # fmt: skip
    return canvas


def _front(
    result: TuneResult, done: Sequence[TunedTrial], a: TunedObjective, b: TunedObjective
) -> Canvas:
    """Two objectives against each other: the front joined, all other trials small."""
    canvas = Canvas(760, 460, f"{b.name} over {a.name}, {len(done)} trials and their front")
    axes = Axes(canvas, _reach([t.values[a.name] for t in done]),
                _reach([t.values[b.name] for t in done]))  # fmt: skip
    write = (lambda v: f"{100 * v:.4g}") if a.share else "{:g}".format
    axes.frame(f"{a.name}{' (%)' if a.share else ''}", f"{b.name}{' (%)' if b.share else ''}",
               [(v, write(v)) for v in ticks(*axes.across)],
               None if b.share else "{:g}".format)  # fmt: skip
    places = {t.number: axes.at(t.values[a.name], t.values[b.name]) for t in done}
    front = sorted((t for t in done if t.number in result.front), key=lambda t: t.values[a.name])
    if len(result.objectives) == 2:
        canvas.path([places[t.number] for t in front], "accent-soft", width=2)
    for trial in done:
        if trial.number not in result.front:
            canvas.dot(places[trial.number], "soft", 3, _note(result, trial))
    for trial in front:
        mine = trial.number == result.chosen
        canvas.dot(places[trial.number], "accent", 8 if mine else 5, _note(result, trial))
        canvas.beside(places[trial.number], str(trial.number))
    return canvas


def _note(result: TuneResult, trial: TunedTrial) -> str:
    scores = ", ".join(f"{o.name} {_written(o, trial.values[o.name])}" for o in result.objectives)
    return f"trial {trial.number}: {scores}; {_params(trial)}"


def _params(trial: TunedTrial) -> str:
    return ", ".join(f"{key} {value}" for key, value in trial.params.items()) or trial.method


def _trials(name: str, result: TuneResult, trials: Sequence[TunedTrial]) -> Markup:
    """Trials with their scores, parameters and the command that makes each."""
    several = len(result.methods) > 1
    heads = [Column("trial"), *([Column("method", number=False, filter=True)] if several else []),
             *(Column(one.name) for one in result.objectives),
             Column("knobs", number=False), Column("seconds", fold=2),
             Column("state", number=False, fold=1),
             Column("make it again", number=False, note="Makes the same weights.")]  # fmt: skip
    rows = []
    for one in trials:
        marks = [m for m, on in (("chosen", one.number == result.chosen),
                                 ("defaults", one.number == result.default)) if on]  # fmt: skip
        state = one.problem or _STATES[one.state] or ", ".join(marks)
        again = Markup("<details><summary>command</summary><code>{}</code></details>").format(
            one.command or "no command: a model was given in memory"
        )
        rows.append([
            Cell(str(one.number), one.number, best=one.number == result.chosen),
            *([Cell(one.method)] if several else []),
            *(Cell(_written(o, one.values[o.name]), one.values[o.name])
              if o.name in one.values else Cell("-") for o in result.objectives),
            Cell(_params(one)), Cell(f"{one.seconds:.1f}", one.seconds), Cell(state),
            Cell(one.command, html=again),
        ])  # fmt: skip
    first = result.objectives[0]
    key = first.name.replace("_", "-").replace(".", "-").lower()
    if name == "trials":
        rows.sort(key=lambda row: (row[1 + several].value is None,
                                   _falling(row[1 + several], first.higher)))  # fmt: skip
    return table(name, heads, rows, most=25,
                 sort=("-" if first.higher else "") + key if name == "trials" else "")  # fmt: skip


def _falling(cell: Cell, higher: bool) -> float:
    value = cell.value if isinstance(cell.value, float) else 0.0
    return -value if higher else value
