"""Errors that a user can mend: one line that says what was expected, what came, and what to do.

Everything raised as a `UserError` is printed by the command line as `error: ...` without a
traceback and ends with exit code 1. Anything else is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class UserError(Exception):
    """Something the user can put right; `hint` says how."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()

    def __reduce__(self) -> tuple[Any, ...]:
        # An error crosses from a worker process by its text, whatever its constructor takes.
        return _rebuild, (type(self), self.message, self.hint)


def _rebuild(kind: type[UserError], message: str, hint: str) -> UserError:
    error = kind.__new__(kind)
    UserError.__init__(error, message, hint=hint)
    return error


class UnknownNameError(UserError):
    """A name that no registry, file or table knows."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, hint: str = "") -> None:
        known = sorted(known)
        listing = ", ".join(known) if known else "none"
        near = did_you_mean(name, known)
        super().__init__(f"no {kind} named {name!r}.{near} Known: {listing}.", hint=hint)
        self.known = known


class BadParameterError(UserError):
    """A parameter that does not exist or whose value does not fit; `parameter` names it."""

    parameter: str = ""

    def __init__(self, message: str, *, hint: str = "", parameter: str = "") -> None:
        super().__init__(message, hint=hint)
        self.parameter = parameter


class BadDataError(UserError):
    """A dataset, image or label file that cannot be used as it is."""


class BadCheckpointError(UserError):
    """A checkpoint that is missing, broken, or not of the expected architecture."""


class MissingDependencyError(UserError):
    """An optional package that is absent, or present and broken."""


class PartialResultsError(UserError):
    """Some cells failed; the others are saved. The command line ends with exit code 3."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence with the nearest known names, led by a space; empty when nothing is near."""
    near = get_close_matches(name, list(known), n=3, cutoff=0.55)
    return f" Did you mean {' or '.join(near)}?" if near else ""
