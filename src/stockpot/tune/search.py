"""One trial after the other: suggest, merge in memory, measure, tell."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError, UserError
from stockpot.fuse import fusers
from stockpot.measure.measurement import Context
from stockpot.results.resamples import resampled_means
from stockpot.tune.merges import Merges
from stockpot.tune.objectives import Flags, Found, Objective, judge
from stockpot.tune.question import OPTIONS
from stockpot.tune.space import Choice, Knob, Space
from stockpot.tune.study import PROBLEM, Pruner, optuna_module, suggest, trials_to_do

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial, Trial

METHOD, PARAMS, FOUND, FLAGS, SECONDS = "method", "params", "found", "flags", "seconds"
_STAGES = (0.1, 0.3, 1.0)
"""Shares of the images after which a trial may be given up."""


class PrunedError(Exception):
    """A trial that is not worth more images."""


@dataclass
class Search:
    """What is searched, and on what it is judged."""

    spaces: Mapping[str, Space]
    fixed: Mapping[str, Any]
    objectives: Sequence[Objective]
    merges: Merges
    unseen: Sequence[bool]
    context: Context
    prune: Pruner = "none"

    def __post_init__(self) -> None:
        if self.prune != "none" and (
            len(self.objectives) > 1 or self.objectives[0].name not in ("clean", "unseen")
        ):
            raise BadParameterError(
                f"prune: {self.prune} compares trials image by image and needs the single "
                "objective clean or unseen; take none for others."
            )

    @property
    def several(self) -> bool:
        """Whether the method is searched too."""
        return len(self.spaces) > 1

    @cached_property
    def knobs(self) -> dict[str, Knob]:
        """All knobs; those of a method only count where it is tried."""
        found: dict[str, Knob] = {}
        if self.several:
            found[METHOD] = Choice(tuple(self.spaces))
        for method, space in self.spaces.items():
            found |= space.knobs(self._prefix(method))
        return found

    def _prefix(self, method: str) -> str:
        return f"{method}." if self.several else ""

    def decide(self, trial: Trial) -> tuple[str, dict[str, Any]]:
        """The method and all its parameters."""
        method = next(iter(self.spaces))
        if self.several:
            method = str(trial.suggest_categorical(METHOD, list(self.spaces)))
        space, prefix = self.spaces[method], self._prefix(method)
        values = suggest(trial, space.knobs(prefix))
        takes = OPTIONS | {row.name for row in fusers.get(method).parameters}
        fixed = {key: value for key, value in self.fixed.items() if key in takes}
        return method, {**fixed, **space.params(values, prefix)}

    def run(self, study: optuna.Study, total: int, told: Callable[[], None]) -> None:
        """Trials until there are enough; `told` is called after each."""
        states = optuna_module().trial.TrialState
        failures: list[UserError] = []
        for trial in trials_to_do(study, total):
            method, params = self.decide(trial)
            trial.set_user_attr(METHOD, method)
            trial.set_user_attr(PARAMS, params)
            begun = time.perf_counter()
            try:
                found = self.evaluate(method, params, trial, study)
            except PrunedError:
                trial.set_user_attr(SECONDS, round(time.perf_counter() - begun, 3))
                study.tell(trial, state=states.PRUNED)
            except UserError as problem:
                failures.append(problem)
                trial.set_user_attr(PROBLEM, str(problem))
                study.tell(trial, state=states.FAIL)
            else:
                _keep(trial, found)
                trial.set_user_attr(SECONDS, round(time.perf_counter() - begun, 3))
                study.tell(trial, [_told(found[one.name]) for one in self.objectives])
            told()
        if failures and not any(t.state == states.COMPLETE for t in study.get_trials(False)):
            raise failures[-1]

    def evaluate(
        self, method: str, params: Mapping[str, Any], trial: Trial, study: optuna.Study
    ) -> dict[str, Found]:
        """The merge, judged by every objective."""
        with self.merges.merged(method, params) as models:
            if self.prune == "none":
                return judge(self.objectives, models, self.merges.data, self.unseen, self.context)
            return self._race(models, trial, study)

    @cached_property
    def _orders(self) -> list[NDArray[np.intp]]:
        """In which order the images of each dataset are shown to a trial that may be given up."""
        draws = [np.random.default_rng([self.context.seed, n]) for n in range(len(self.unseen))]
        return [
            draw.permutation(len(data)).astype(np.intp)
            for draw, data in zip(draws, self.merges.data, strict=True)
        ]

    @cached_property
    def _parts(self) -> list[list[Dataset]]:
        """The images of each stage."""
        stages = []
        for low, high in zip((0.0, *_STAGES), _STAGES, strict=False):
            parts = []
            for data, order in zip(self.merges.data, self._orders, strict=True):
                start, stop = (round(end * len(order)) for end in (low, high))
                parts.append(data.take(torch.from_numpy(order[start:stop])))
            stages.append(parts)
        return stages

    def _race(self, models: Any, trial: Trial, study: optuna.Study) -> dict[str, Found]:
        """Stage by stage; given up where the best so far is better beyond noise, or Optuna says."""
        objective = self.objectives[0]
        own = [n for n, unseen in enumerate(self.unseen) if unseen == objective.unseen]
        seen: list[list[Flags]] = [[] for _ in own]
        best = best_before(study, trial.number) if self.prune == "racing" else None
        reported = study.get_trials(deepcopy=False)[trial.number].intermediate_values
        rivals = flags_of(best, objective.name) if best is not None else []
        for stage, parts in enumerate(self._parts):
            found = judge(self.objectives, models, parts, self.unseen, self.context)
            for place, flags in enumerate(found[objective.name].flags):
                seen[place].append(flags)
            shown = [np.concatenate(parts) for parts in seen]
            value = objective.combine([float(flags.mean()) for flags in shown])
            if stage == len(self._parts) - 1:
                break
            step = round(10 * _STAGES[stage])  # tenths of the images: what halving multiplies by 3
            if step not in reported:  # by a process that was killed, of the same trial
                trial.report(value, step)
            others = [
                flags[self._orders[n][: len(mine)]]
                for flags, mine, n in zip(rivals, shown, own, strict=False)
            ]
            if (others and _worse(shown, others, self.context.seed)) or trial.should_prune():
                raise PrunedError
        whole = []
        for flags, n in zip(shown, own, strict=True):
            back = np.empty_like(flags)
            back[self._orders[n]] = flags
            whole.append(back)
        tasks = tuple(float(flags.mean()) for flags in whole)
        return {objective.name: Found(objective.combine(tasks), True, tasks, tuple(whole))}


def _worse(mine: Sequence[Flags], others: Sequence[Flags], seed: int) -> bool:
    """Whether a mean over tasks is lower beyond noise, on the same images."""
    means = [
        resampled_means(
            (a.astype(np.float64) - b)[:, None], seed=seed + task, resamples=1000
        )[:, 0]
        for task, (a, b) in enumerate(zip(mine, others, strict=True))
    ]  # fmt: skip
    return float(np.quantile(np.mean(means, axis=0), 0.975)) < 0


def best_before(study: optuna.Study, number: int) -> FrozenTrial | None:
    """The best finished trial with a lower number; the first of several."""
    done = [
        t
        for t in study.get_trials(deepcopy=False)
        if t.state.name == "COMPLETE" and t.number < number
    ]
    return max(done, key=lambda t: (t.values[0], -t.number), default=None)


def _told(found: Found) -> float:
    """As Optuna hears it: higher is better."""
    return found.value if found.higher else -found.value


def _keep(trial: Trial, found: Mapping[str, Found]) -> None:
    """Keep with the trial what the choice needs; images as bits."""
    plain = {
        name: {"value": one.value, "higher": one.higher, "tasks": list(one.tasks)}
        for name, one in found.items()
    }
    trial.set_user_attr(FOUND, plain)
    bits = {
        name: [[len(f), base64.b64encode(np.packbits(f).tobytes()).decode()] for f in one.flags]
        for name, one in found.items()
        if one.flags
    }
    trial.set_user_attr(FLAGS, bits)


def flags_of(trial: FrozenTrial, objective: str) -> list[Flags]:
    """For each task which images a trial was right about; nothing where that is not kept."""
    found = []
    for n, text in trial.user_attrs.get(FLAGS, {}).get(objective, ()):
        bits = np.frombuffer(base64.b64decode(text), dtype=np.uint8)
        found.append(np.unpackbits(bits, count=n).astype(np.bool_))
    return found
