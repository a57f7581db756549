"""Advice: what was found, what to do, and the study behind it, as text, table and JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal

from stockpot.advise.evidence import EVIDENCE
from stockpot.advise.facts import Facts, Member
from stockpot.notebook import table_html

Kind = Literal["first", "works", "avoid", "open"]
TITLES: dict[Kind, str] = {
    "first": "Do first",
    "works": "What will work",
    "avoid": "What will not",
    "open": "What no study here decides",
}
COLUMNS = ("member", "change", "like the base", "rank", "nearest change", "what it is")
_WIDTH = 98


@dataclass(frozen=True)
class Item:
    """One piece of advice."""

    kind: Kind
    what: str
    why: str
    """What of this pool speaks for it."""
    evidence: tuple[str, ...] = ()
    """Keys of `EVIDENCE`."""
    commands: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """For JSON: with the sentences and studies that stand behind it."""
        behind = [
            {"because": EVIDENCE[key].because, "study": EVIDENCE[key].link} for key in self.evidence
        ]
        return {**asdict(self), "evidence": behind, "commands": list(self.commands)}


@dataclass(frozen=True)
class Advice:
    """What `stockpot advise` says of a pool; as text it is what the command prints."""

    facts: Facts
    items: tuple[Item, ...]

    def of(self, kind: Kind) -> tuple[Item, ...]:
        """The items of one kind."""
        return tuple(item for item in self.items if item.kind == kind)

    def plain(self) -> dict[str, Any]:
        """Facts and items as plain values."""
        return {"facts": asdict(self.facts), "advice": [item.plain() for item in self.items]}

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.plain(), indent=1, ensure_ascii=False)

    @property
    def summary(self) -> str:
        """The pool in a few lines."""
        facts = self.facts
        several = "member" if len(facts.members) == 1 else "members"
        lines = [f"{len(facts.members)} {several} of {facts.base}"]
        if facts.weights:
            lines[0] += (
                f": {facts.weights / 1e6:.2f} M weights in {facts.tensors} tensors, "
                f"{100 * facts.matrices:.0f} % of them in matrices"
            )
        if len(facts.usable) > 1:
            lines.append(
                f"cosine of the changes {facts.mean_cosine:+.2f} in the mean, equal signs "
                f"{100 * facts.agreement:.0f} %"
            )
        if len(facts.layers) > 1 and len(facts.usable) > 1:
            order = sorted(facts.layers, key=lambda name: facts.layers[name])
            least, most = order[0], order[-1]
            lines.append(
                f"they disagree most in {least} ({facts.layers[least]:+.2f}) and agree most in "
                f"{most} ({facts.layers[most]:+.2f})"
            )
        if any(member.line for member in facts.members):
            lines.append(f"lines to the base measured on {facts.images} images of {facts.data}")
        return "\n".join(lines)

    def rows(self) -> list[list[str]]:
        """The members as a table, in the order of `COLUMNS`."""
        return [_row(member, self.facts) for member in self.facts.members]

    def __str__(self) -> str:
        parts = []
        for kind, title in TITLES.items():
            items = self.of(kind)
            if items:
                parts.append("\n".join([title, *(_told(item) for item in items)]))
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        return f"Advice({len(self.items)} items)\n{self.summary}\n\n{self}"

    def _repr_html_(self) -> str:
        found = table_html(list(COLUMNS), self.rows(), self.summary.partition("\n")[0])
        return f"{found}<pre>{escape(str(self))}</pre>"


def _row(member: Member, facts: Facts) -> list[str]:
    if not member.comparable or member.name not in facts.cosines:
        what = f"the same as {member.same_as}" if member.same_as else member.fits
        return [member.name, "-", "-", "-", "-", what]
    usable = {other.name for other in facts.usable} - {member.name}
    others = {name: cosine for name, cosine in facts.cosines[member.name].items()
              if name in usable}  # fmt: skip
    near = max(others, key=lambda name: others[name]) if others else ""
    seen = member.spectrum
    rank = f"{100 * seen.share:.0f} % ({100 * seen.energy:.0f} %)" if seen else "-"
    return [
        member.name,
        f"{100 * member.length:.1f} %",
        f"{member.kin:.3f}",
        rank,
        f"{near} {others[near]:+.2f}" if near else "-",
        _kind_of(member),
    ]


def _kind_of(member: Member) -> str:
    if member.same_as:
        return f"the same as {member.same_as}"
    words = [
        f"LoRA of rank {member.adapter}" if member.adapter is not None else "",
        f"trained on {member.task}" if member.task else "",
        f"against {member.threat}" if member.threat else "",
        "" if member.belongs else "not of this family",
        "" if member.fits == "whole" else member.fits,
    ]
    if member.line:
        words.append(
            f"halfway {100 * member.line.halfway:.0f} between {100 * member.line.base:.0f} and "
            f"{100 * member.line.member:.0f}"
        )
    return ", ".join(filter(None, words)) or "fine-tuned"


def _told(item: Item) -> str:
    behind = [f"{EVIDENCE[key].because} ({EVIDENCE[key].link})" for key in item.evidence]
    lines = _wrapped([f"{item.what}: {item.why}"], "- ", "  ")
    lines += _wrapped(behind, "    because ", "    ")
    return "\n".join([*lines, *(f"    $ {command}" for command in item.commands)])


def _wrapped(texts: Sequence[str], first: str, rest: str) -> list[str]:
    return [
        line
        for text in texts
        for line in textwrap.wrap(
            text, _WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False,
            break_on_hyphens=False,
        )
    ]  # fmt: skip
