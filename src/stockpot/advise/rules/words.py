"""A pool as words: of sentences, and of command lines."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from stockpot.advise.facts import Facts, Member


@dataclass(frozen=True)
class Words:
    """The pool as words of a command line."""

    facts: Facts

    @property
    def base(self) -> str:
        return shlex.quote(self.facts.base_source)

    @property
    def members(self) -> str:
        return self.of(self.facts.usable)

    @property
    def data(self) -> str:
        """The data that was given, or what it was trained on, or a word for it."""
        known = self.facts.data or next(iter(self.facts.tasks), "")
        return shlex.quote(known) if known else "DATA"

    @property
    def tasks(self) -> str:
        """What each member was trained on, as `--task` wants it."""
        each = [shlex.quote(f"{member.task}@train") if member.task else f"TASK{k}"
                for k, member in enumerate(self.facts.usable, start=1)]  # fmt: skip
        return " ".join(f"--task {task}" for task in each)

    @property
    def judged(self) -> str:
        """What a merge is to be judged by, once for each task."""
        several = self.facts.tasks if not self.facts.data else ()
        return " ".join(f"--data {shlex.quote(task)}" for task in several) or f"--data {self.data}"

    def of(self, members: Sequence[Member]) -> str:
        """Members by their sources."""
        return " ".join(shlex.quote(member.source) for member in members)

    def fuse(self, method: str, further: str = "") -> str:
        """Fuse the members that belong together."""
        heads = "--head each" if self.facts.own_heads and "--head" not in further else ""
        end = "".join(f" {words}" for words in (further, heads) if words)
        return f"stockpot fuse {method} {self.members} --base {self.base}{end} -o fused/{method}"


def called(members: Sequence[Member]) -> str:
    """The names of some members in a sentence."""
    return joined([member.name for member in members])


def joined(texts: Sequence[str]) -> str:
    """Texts in a sentence."""
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else list(texts))
