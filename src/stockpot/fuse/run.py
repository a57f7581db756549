"""Fuse checkpoints: the calls that users and the command line make.

This module imports torch only when a call has found its files and begun to hash them, so that the
two seconds of import and hashing pass together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from stockpot.checkpoints.hashes import FileHashes
from stockpot.errors import BadParameterError
from stockpot.fuse.request import Request, make_request, split_options
from stockpot.stages import Spent, stage, timed

if TYPE_CHECKING:
    from stockpot.fuse.cost import Plan
    from stockpot.fuse.request import Spec, Tasks


@overload
def fuse(
    method: str,
    members: Sequence[Spec] | Mapping[str, Spec],
    *,
    base: Spec | None = None,
    tasks: Tasks | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    out: None = None,
    **settings: Any,
) -> dict[str, Any]: ...
@overload
def fuse(
    method: str,
    members: Sequence[Spec] | Mapping[str, Spec],
    *,
    base: Spec | None = None,
    tasks: Tasks | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    out: str | Path,
    **settings: Any,
) -> Path: ...
def fuse(
    method: str,
    members: Sequence[Spec] | Mapping[str, Spec],
    *,
    base: Spec | None = None,
    tasks: Tasks | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> dict[str, Any] | Path:
    """Fuse checkpoints into one.

    Args:
        method: the name of a fusion method, such as `average` or `ties`.
        members: folders, files, hub ids, zoo names, modules or state dicts; a list, or a mapping
            of names.
        base: the model that the members were fine-tuned from, for the methods that need it.
        tasks: datasets or their names for data-driven methods: one per member, in their order or
            by their names. A name means its `test` split.
        progress: called with a text, steps done and steps in all while such a method learns.
        out: a folder to write, in the Hugging Face layout; without it the weights are returned.
        **settings: the method's parameters and the options of `stockpot.fuse.request.Options`.

    Returns:
        A state dict, or the path of the folder. Methods that make a model per member (`emr`,
        `tall_mask`, `bitdelta`, `randes`) give a state dict per member name, or a folder with one
        folder per member. Methods that make a module (`wemoe`, `smile`, `ensemble`, ...) need
        `out`; `load_model` reads it.
    """
    options, params = split_options(settings)
    request = make_request(method, members, base, tasks, options, {"": params}, progress)
    results = _fused(request, Path(out) if out is not None else None)
    return results if isinstance(results, Path) else results[""]


def sweep(
    method: str,
    members: Sequence[Spec] | Mapping[str, Spec],
    *,
    key: str,
    values: Sequence[Any],
    base: Spec | None = None,
    tasks: Tasks | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Fuse the same checkpoints with several values of one parameter, reading them once.

    Args:
        method: the name of a fusion method.
        members: as for `fuse`.
        key: the parameter that varies, such as `scale`.
        values: its values.
        base: as for `fuse`.
        tasks: as for `fuse`.
        progress: as for `fuse`.
        out: a folder that gets one model folder per value, named `key=value`.
        **settings: the other parameters and options.

    Returns:
        `key=value` -> state dict, or -> path of its folder.
    """
    if not values:
        raise BadParameterError(f"sweep: expected values for {key!r}, got none.")
    options, params = split_options(settings)
    points = {f"{key}={value}": {**params, key: value} for value in values}
    request = make_request(method, members, base, tasks, options, points, progress)
    results = _fused(request, Path(out) if out is not None else None)
    if isinstance(results, Path):
        return {label: results / label for label in points}
    return results


def plan(
    method: str,
    members: Sequence[Spec] | Mapping[str, Spec],
    *,
    base: Spec | None = None,
    tasks: Tasks | None = None,
    **settings: Any,
) -> Plan:
    """Check everything that `fuse` would check and say what it would cost, without running it."""
    options, params = split_options(settings)
    request = make_request(method, members, base, tasks, options, {"": params})
    from stockpot.fuse.cost import plan_job
    from stockpot.fuse.job import prepare

    return plan_job(request, prepare(request))


@timed()
def _fused(request: Request, out: Path | None) -> Path | dict[str, Any]:
    spent = Spent()
    with _hashing(request, wanted=out is not None) as hashes:
        with stage("start"):
            from stockpot.fuse.execute import execute
            from stockpot.fuse.job import prepare

        with stage("load"):
            job = prepare(request)
        return execute(request, job, out, hashes, spent)


@contextmanager
def _hashing(request: Request, *, wanted: bool) -> Iterator[FileHashes | None]:
    if not wanted or not request.options.hashes:
        yield None
        return
    hashes = FileHashes(request.files)
    try:
        yield hashes
    finally:
        hashes.stop()
