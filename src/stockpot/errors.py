"""Errors that a user can mend: one line that says what was expected, what came, and what to do.

Everything raised as a `UserError` is printed by the command line as `error: ...` without a
traceback and ends with exit code 1. Anything else is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any
from unicodedata import category

LONGEST = 1200
"""Characters of a message: what is longer is not read. Its middle goes, with the lists that stand
there; `message` and `hint` keep all of it."""


class UserError(Exception):
    """Something the user can put right; `hint` says how."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        whole = printable(" ".join(f"{self.message} {self.hint}".split()))
        return shortened(whole, LONGEST)

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
        near = did_you_mean(name, known)
        shown = shortened(repr(name), 80)
        super().__init__(f"no {kind} named {shown}.{near} Known: {listed(known)}.", hint=hint)
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
    near = get_close_matches(name[:200], list(known), n=3, cutoff=0.55)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def listed(names: Iterable[str], room: int = 180) -> str:
    """Names in a row, as many as fit, and how many more there are."""
    known = list(names)
    shown: list[str] = []
    for name in known:
        if shown and sum(map(len, shown)) + 2 * len(shown) + len(name) > room:
            return f"{', '.join(shown)} and {len(known) - len(shown)} more"
        shown.append(shortened(name, room))
    return ", ".join(shown) or "none"


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters: of a longer one the middle is left out."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end - 5]} ... {text[-end:]}"


def printable(text: str) -> str:
    """A text that a terminal shows and does not obey: control characters, escape sequences, marks
    that turn the direction of writing, and bytes that are no UTF-8 are spelled out."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter if letter in "\n\t" or not _is_hostile(letter) else _spelled(letter)
        for letter in text
    )


def _is_hostile(letter: str) -> bool:
    return category(letter) in ("Cc", "Cs") or letter in _TURNS


_TURNS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")


def _spelled(letter: str) -> str:
    return ascii(letter)[1:-1]
