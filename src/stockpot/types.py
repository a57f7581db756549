"""Small frozen values and the types of parameters that several rooms share.

A parameter's type checks its value, so that a recipe, `-p key=value` and Python are told of a
mistake before any work begins; a type that belongs to one room (severities, radii, ...) lives
there and is made with `Check`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from stockpot.errors import BadParameterError, UserError, shortened

Norm = Literal["linf", "l2", "l1"]
Split = Literal["train", "val", "test"]
MOST = 1_000_000_000
"""No count of steps, images or tries is larger: such a number is a slip, and would run for ever."""
Count = Annotated[int, Field(ge=1, le=MOST)]
"""How many, of what there must be at least one."""
Natural = Annotated[int, Field(ge=0, le=MOST)]
"""How many, possibly none."""
_SEEDS = 2**63
Seed = Annotated[int, Field(ge=0, lt=_SEEDS)]
"""Of random numbers: what every generator takes."""
Epochs = Annotated[int, Field(ge=0, le=100_000)]
"""Passes over a dataset."""
Fraction01 = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
"""A share of a whole, from 0 to 1."""
Part = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
"""A share that leaves something of the whole."""
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

Precision = Literal["fp32", "tf32", "bf16"]
"""Of a network's arithmetic: full, products in TensorFloat-32, or everything in bfloat16."""
PrecisionChoice = Literal["auto", "fp32", "tf32", "bf16"]
"""A precision, or the one that suits the device."""
BatchSize = Count | Literal["auto"]
"""Images per forward pass, or what suits the device and fits into its memory."""

ReferenceKind = Literal[
    "model", "data", "datasets", "autoencoder", "attack", "generator", "oracle", "oracles",
    "sheets", "images", "corrupted",
]  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """Marks the type of a parameter whose value names something else, and says what."""

    kind: ReferenceKind


ModelRef = Annotated[str, Reference("model")]
"""A model: as for `load_model`, or in a recipe the name of one of its models."""
DataRef = Annotated[str, Reference("data")]
"""A dataset: as for `load_dataset`, or in a recipe the name of one of its datasets."""
AutoencoderRef = Annotated[str, Reference("autoencoder")]
"""The weights of an autoencoder: a folder, a file, or a name of the zoo."""


def Check(function: Callable[[Any], Any]) -> BeforeValidator:  # noqa: N802
    """A mark for `Annotated` types: values pass through `function`, which may raise `UserError`."""

    def validate(value: Any) -> Any:
        try:
            return function(value)
        except UserError as problem:
            raise PydanticCustomError("user_error", "{told}", {"told": str(problem)}) from None
        # A check is written for values of its kind; a list where a name belongs fits no line of it.
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
            told = f"a value that does not fit: {shortened(repr(value), 80)}"
            raise PydanticCustomError("user_error", "{told}", {"told": f"{told}."}) from None

    return BeforeValidator(validate)


def Together(function: Callable[[Any, dict[str, Any]], None]) -> AfterValidator:  # noqa: N802
    """As `Check`, for a value that must fit the parameters before it, which come as a mapping."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        try:
            function(value, info.data)
        except UserError as problem:
            raise PydanticCustomError("user_error", "{told}", {"told": str(problem)}) from None
        return value

    return AfterValidator(validate)


def check_seed(seed: int) -> None:
    """Raise for a number that is no `Seed`."""
    if not 0 <= seed < _SEEDS:
        raise BadParameterError(f"seed: expected a whole number from 0 to 2^63 - 1, got {seed}.")


class Bounds(NamedTuple):
    """The interval that pixel values live in."""

    lower: float = 0.0
    upper: float = 1.0


class ImageSize(NamedTuple):
    """Height and width in pixels."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.height}x{self.width}"


@dataclass(frozen=True)
class Variant:
    """One of the models that an entry of a recipe stands for."""

    entry: str
    seed: int | None = None
    """What it is trained with, where the entry has several seeds."""
    sweep: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    """The value of the parameter that the entry sweeps."""

    @property
    def label(self) -> str:
        """How the model is called: its folder, and its row in a table."""
        point = "".join(f"-{key}={value}" for key, value in self.sweep.items())
        run = "" if self.seed is None else f"-s{self.seed}"
        return f"{self.entry}{point}{run}"


def parse_number(text: str | float, *, what: str = "value") -> float:
    """Read a number that may be written as a fraction, such as `8/255`."""
    try:
        if isinstance(text, int | float):
            found = float(text)
        else:
            # Not `Fraction`, which would write 1e999999999 out.
            above, slash, below = text.replace(" ", "").partition("/")
            found = float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError, OverflowError, AttributeError):
        found = math.nan
    if not math.isfinite(found):
        raise BadParameterError(
            f"{what}: expected a number or a fraction such as 8/255, got "
            f"{shortened(repr(text), 60)}."
        )
    return found


def named_by(hint: Any) -> ReferenceKind | None:
    """What a parameter of this type names: the mark lies in the type or in a part of a union."""
    waiting = [hint]
    while waiting:
        part = waiting.pop()
        for mark in getattr(part, "__metadata__", ()):
            if isinstance(mark, Reference):
                return mark.kind
        if get_origin(part) is not Literal:  # its arguments are values, not types
            waiting += reversed(get_args(part))
    return None


_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def spelled(hint: Any) -> str:
    """A type in the words of a user: what may be written, not the name that the source gives it."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marks = hint.__metadata__
        named = next((mark.kind for mark in marks if isinstance(mark, Reference)), None)
        bounds = [
            f"{_SIGNS[sign]} {getattr(bound, sign)}"
            for mark in marks
            for bound in getattr(mark, "metadata", ())
            for sign in _SIGNS
            if hasattr(bound, sign) and getattr(bound, sign) != MOST
        ]
        return named or " ".join([spelled(parts[0]), " and ".join(bounds)]).strip()
    if origin is Literal:
        return " | ".join(map(str, parts))
    if origin in (Union, UnionType):
        return " | ".join(dict.fromkeys(map(spelled, parts)))
    if parts:
        return f"{origin.__name__}[{', '.join(map(spelled, parts))}]"
    if hint is Ellipsis:
        return "..."
    return "none" if hint is type(None) else getattr(hint, "__name__", str(hint))
