"""The trials of a search in a storage that several processes share and any of them goes on from.

A trial is a number. What it tries follows from that number, the seed and the trials before it, and
never from which process takes it; one whose process died is taken up again under its own number.
So a search that was killed and resumed is the search that was not.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stockpot.errors import BadParameterError, UserError
from stockpot.files import is_abandoned, own_mark
from stockpot.stages import stage
from stockpot.tune.space import Choice, Knob, Range, to_digits

if TYPE_CHECKING:
    import optuna
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, Trial

Sampler = Literal["tpe", "cma", "random", "grid", "nsga2"]
Pruner = Literal["none", "racing", "median", "halving"]
SAMPLERS: tuple[Sampler, ...] = ("tpe", "cma", "random", "grid", "nsga2")
PRUNERS: tuple[Pruner, ...] = ("none", "racing", "median", "halving")
_STUDY = "stockpot"
_BOTH = ("exist", "lock", "unique", "duplicate")
"""What databases say where two processes make the same tables."""
_OWNER, QUESTION, PROBLEM = "owner", "question", "problem"
_NAMELESS = 10.0
"""Seconds that a process has to put its name to the trial it asked for."""
_GLANCE = 0.2
"""Seconds between looks at trials of others."""
_PATIENCE = 3600.0
"""Seconds after which a trial of another machine counts as lost."""


@cache
def _token(process: int) -> str:
    """A name for this process that no other has had, not even one with its number."""
    return f"{own_mark()}|{uuid.uuid4().hex[:8]}"


def _me() -> str:
    return _token(os.getpid())


def optuna_module() -> Any:
    """Optuna, quiet; or what to install."""
    try:
        with stage("start"):
            import optuna
    except ImportError:
        raise UserError(
            "tune: searching needs Optuna, which is not installed.",
            hint="pip install 'stockpot[tune]'.",
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def open_study(storage: str, directions: int, question: Mapping[str, Any]) -> optuna.Study:
    """The study of a storage, made where there is none; refuses one of another question."""
    optuna = optuna_module()
    address = storage
    if storage.startswith(("postgresql://", "postgres://")):
        # The driver that the extra `index` brings; SQLAlchemy 2.0 would look for another.
        address = "postgresql+psycopg://" + storage.partition("://")[2]
    own = {"connect_args": {"timeout": 120}} if storage.startswith("sqlite") else {}
    study = None
    for attempt in range(20):
        try:
            opened = optuna.storages.RDBStorage(address, engine_kwargs=own)
            if own:
                _quicken(opened)
            study = optuna.create_study(
                storage=opened, study_name=_STUDY, load_if_exists=True,
                directions=["maximize"] * directions,
            )  # fmt: skip
            break
        except Exception as problem:  # two processes that both make the tables
            said = str(problem).splitlines()[0]
            if attempt == 19 or not any(word in said.lower() for word in _BOTH):
                raise UserError(f"tune: {storage} cannot be opened: {said}") from problem
            time.sleep(0.1)
    assert study is not None
    known = study.user_attrs.get(QUESTION)
    if known is None:
        study.set_user_attr(QUESTION, dict(question))
    elif known != dict(question):
        unlike = [key for key in question if known.get(key) != question[key]]
        raise BadParameterError(
            f"tune: {storage} holds another search: {', '.join(unlike) or 'what it asks'} differs.",
            hint="Choose another folder (-o) or storage; trials of two searches do not mix.",
        )
    return study  # type: ignore[no-any-return]


def close_study(study: optuna.Study) -> None:
    """Let go of the storage: the last to do so leaves one whole file of a SQLite database."""
    backend: Any = getattr(study._storage, "_backend", study._storage)
    backend.remove_session()
    backend.engine.dispose()


def _quicken(storage: Any) -> None:
    """Let SQLite append to a log: a trial then does not wait for the disk a dozen times.

    What a killed process had written stays; a power cut may lose the last trials, and no more.
    """
    from sqlalchemy import event

    def begin(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")

    event.listen(storage.engine, "connect", begin)
    storage.engine.dispose()


def sqlite_in(folder: Path) -> str:
    """The storage of a search by default: one file in its folder."""
    return f"sqlite:///{(folder / 'tune.db').absolute()}"


def trials_to_do(study: optuna.Study, total: int) -> Iterator[Trial]:
    """Trials, one after the other, until there are as many as are wanted.

    First come those whose process is gone; then new ones. Another process may take some meanwhile,
    and the end is when those have ended too, so that all choose from the same trials.
    """
    optuna = optuna_module()
    states = optuna.trial.TrialState
    while True:
        known = study.get_trials(deepcopy=False)
        lost = [t for t in known if t.state == states.RUNNING and _is_lost(t)]
        if lost:
            try:
                trial = optuna.trial.Trial(study, lost[0]._trial_id)
                trial.set_user_attr(_OWNER, _me())
            except optuna.exceptions.UpdateFinishedTrialError:
                continue  # another process took it up and has ended it
            yield trial
            continue
        if any(t.state == states.RUNNING and _OWNER not in t.user_attrs for t in known):
            time.sleep(0.1)  # it gets an owner, or turns out to be lost; what follows builds on it
            continue
        if sum(map(_counts, known)) >= total:
            if not any(t.state == states.RUNNING for t in known):
                return
            time.sleep(_GLANCE)
            continue
        trial = study.ask()
        trial.set_user_attr(_OWNER, _me())
        before = [t for t in study.get_trials(deepcopy=False) if t.number < trial.number]
        if sum(map(_counts, before)) >= total:  # another process had the same thought
            study.tell(trial, state=states.FAIL)
            continue
        yield trial


def _counts(trial: FrozenTrial) -> bool:
    """Whether a trial is one of those that were wanted; a surplus one was given up at once."""
    return trial.state.name != "FAIL" or PROBLEM in trial.user_attrs


def _is_lost(trial: FrozenTrial) -> bool:
    owner = str(trial.user_attrs.get(_OWNER, ""))
    begun = trial.datetime_start.timestamp() if trial.datetime_start else 0.0
    if not owner:  # begun a moment ago, or by a process that was killed in that moment
        return time.time() - begun > _NAMELESS
    if owner == _me():
        return True  # this process asks for the next one, so it is not at work on it
    mark = owner.partition("|")[0]
    if mark.partition("-")[0] == own_mark().partition("-")[0]:  # of this machine
        return is_abandoned(mark)
    return time.time() - begun > _PATIENCE


def suggest(trial: Trial, knobs: Mapping[str, Knob]) -> dict[str, Any]:
    """A value for every knob, of four digits where it is a number."""
    found: dict[str, Any] = {}
    for name, knob in knobs.items():
        if isinstance(knob, Choice):
            found[name] = trial.suggest_categorical(name, list(knob.options))
        elif knob.whole:
            found[name] = trial.suggest_int(name, int(knob.low), int(knob.high), log=knob.log)
        else:
            value = trial.suggest_float(name, knob.low, knob.high, log=knob.log)
            found[name] = min(max(to_digits(value), knob.low), knob.high)
    return found


def grid_points(knobs: Mapping[str, Knob], count: int) -> list[dict[str, Any]]:
    """Every combination: all choices, and `count` numbers of every range."""
    sides = [
        list(knob.options) if isinstance(knob, Choice) else knob.points(count)
        for knob in knobs.values()
    ]
    return [dict(zip(knobs, values, strict=True)) for values in product(*sides)]


def numbered_sampler(
    name: Sampler, seed: int, first: Sequence[Mapping[str, Any]], several: bool
) -> BaseSampler:
    """A sampler that forgets everything between trials but what the storage holds.

    Args:
        name: which.
        seed: of the search.
        first: points that the first trials try, before the sampler has its way.
        several: whether there are several objectives.
    """
    optuna = optuna_module()
    if name not in SAMPLERS:
        raise BadParameterError(f"sampler: expected one of {', '.join(SAMPLERS)}, got {name!r}.")
    if name == "cma" and several:
        raise BadParameterError(
            "sampler: cma follows one objective; take tpe or nsga2 for several."
        )

    class Numbered(optuna.samplers.BaseSampler):  # type: ignore[misc, name-defined]
        """Built anew for every number."""

        def __init__(self) -> None:
            self._at = -1
            self._inner: Any = None
            self._given: Mapping[str, Any] | None = None

        def _of(self, number: int) -> Any:
            if number != self._at:
                own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
                self._at, self._inner = number, _inner(optuna, name, own)
                self._given = first[number] if number < len(first) else None
            return self._inner

        def before_trial(self, study: Any, trial: Any) -> None:
            self._of(trial.number).before_trial(study, trial)

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            inner = self._of(trial.number)
            return {} if self._given else inner.infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            inner = self._of(trial.number)
            return {} if self._given else inner.sample_relative(study, trial, search_space)

        def sample_independent(self, study: Any, trial: Any, name: str, dist: Any) -> Any:
            inner = self._of(trial.number)
            if self._given and name in self._given:
                return self._given[name]
            return inner.sample_independent(study, trial, name, dist)

        def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
            self._of(trial.number).after_trial(study, trial, state, values)

    return Numbered()


def _inner(optuna: Any, name: Sampler, seed: int) -> Any:
    samplers = optuna.samplers
    if name == "tpe":
        return samplers.TPESampler(seed=seed)
    if name == "cma":
        return samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
    if name == "nsga2":
        return samplers.NSGAIISampler(seed=seed, population_size=20)
    return samplers.RandomSampler(seed=seed)


def pruner_of(name: Pruner) -> Any:
    """Optuna's part in pruning; `racing` is our own (`racing.py`)."""
    optuna = optuna_module()
    if name not in PRUNERS:
        raise BadParameterError(f"prune: expected one of {', '.join(PRUNERS)}, got {name!r}.")
    if name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=5)
    if name == "halving":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
    return optuna.pruners.NopPruner()


def check_knobs(knobs: Mapping[str, Knob], sampler: Sampler) -> None:
    """Whether a sampler can turn these knobs."""
    if not knobs:
        raise BadParameterError("tune: nothing to search: no knob has a range.",
                                hint="Give one: --space scale=0.1:1.")  # fmt: skip
    strange = [name for name, knob in knobs.items() if not isinstance(knob, Range)]
    if sampler == "cma" and strange:
        raise BadParameterError(
            f"sampler: cma turns numbers only, and {', '.join(strange)} is a choice.",
            hint="Fix it with -p, or take tpe.",
        )
