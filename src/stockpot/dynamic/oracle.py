"""What an oracle is: whoever says which class an image still shows, and when that is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from stockpot.datasets.words.words import Words
from stockpot.errors import BadParameterError
from stockpot.types import Check

Vocabulary = Literal["data", "model", "all"]
"""Among which classes an oracle chooses: those of the data, those of the model under test, or all
that the oracle itself knows (a dual encoder is told those of data and model)."""


@dataclass(frozen=True)
class Setting:
    """What an oracle is made for: the data's classes, prompts and name, and a device."""

    classes: tuple[str, ...]
    templates: tuple[str, ...] = ("a photo of a {}.",)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    data: str = ""
    vocabulary: Words | None = None
    offered: Vocabulary = "data"
    rivals: tuple[str, ...] = ()
    """The classes of the model under test that the data does not have."""
    cropped: bool = False
    """Whether pictures come cut to what the model under test sees: an oracle then looks at all of
    them, whatever its own size is, and cuts nothing more."""

    @property
    def columns(self) -> int:
        """How many shares an oracle gives: one for each class, and one for the best of the rest."""
        return len(self.classes) + (self.offered != "data")


class Oracle(Protocol):
    """Judges images in the classes of the data."""

    name: str

    @property
    def networks(self) -> Sequence[nn.Module]:
        """The networks it consists of, to tell whether it is the model under test."""
        ...

    def judge(self, pixels: Tensor) -> Tensor:
        """A share for every image and class of the data; all zero where it abstains.

        Where the vocabulary is larger than the data's, one more column has the best other class.
        """
        ...


class Rule(NamedTuple):
    """When a judgement stands for the label: `argmax`, `top-K`, or `margin:M`."""

    kind: str
    amount: float = 0.0

    def accepts(self, shares: Tensor, labels: Tensor) -> Tensor:
        """Whether each image is accepted as its label; one that got no share never is."""
        own = shares.gather(1, labels[:, None])[:, 0]
        others = shares.scatter(1, labels[:, None], -1.0)
        if self.kind == "top":
            ahead = (others > own[:, None]).sum(dim=1)
            return (ahead < int(self.amount)) & (own > 0)
        # A tie with a class of a lower number is lost, as argmax would have it.
        rival, place = others.max(dim=1)
        if self.kind == "margin":
            return (own - rival >= self.amount) & (own > 0)
        return ((own > rival) | ((own == rival) & (labels < place))) & (own > 0)

    def __str__(self) -> str:
        return {"top": f"top-{self.amount:g}", "margin": f"margin:{self.amount:g}"}.get(
            self.kind, self.kind
        )


def parse_rule(text: str) -> Rule:
    """Read `argmax`, `top-5` or `margin:0.2`."""
    if text == "argmax":
        return Rule("argmax")
    kind, number = ("top", text[4:]) if text.startswith("top-") else ("", "")
    if text.startswith("margin:"):
        kind, number = "margin", text[7:]
    try:
        amount = float(number)
    except ValueError:
        amount = -1.0
    if not kind or amount < (1 if kind == "top" else 0) or (kind == "margin" and amount > 1):
        raise BadParameterError(
            f"rule: expected argmax, top-K (K >= 1) or margin:M (0 to 1), got {text!r}."
        )
    return Rule(kind, amount)


RuleText = Annotated[str, Check(lambda text: parse_rule(str(text)) and text)]
"""When an oracle accepts, as text."""
