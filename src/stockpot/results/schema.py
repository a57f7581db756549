"""The result file: one JSON document per (model, measure, data) cell.

Readers never need the model or the data again: a document carries its scores with their
intervals, the whole condition they were taken under, and where they came from. Fractions stay
fractions here; pages print percents.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from stockpot.notebook import table_html
from stockpot.results.packed import unpack_bits, unpack_groups

Scalar = str | int | float | bool | None

SHOWN_SCORES = 20
"""Of a cell, in a notebook; a corruption measure has hundreds."""


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Score(_Document):
    """One number, with what is needed to trust it."""

    metric: str
    value: float
    n: int = Field(ge=0, description="How many images (or repeats) the number stands on.")
    ci_low: float | None = None
    ci_high: float | None = None
    ci_method: str = Field("", description="For example `wilson-95`; empty where exact.")
    higher_is_better: bool | None = Field(True, description="None where no direction is better.")
    unit: Literal[
        "fraction", "nats", "count", "seconds", "bytes", "per_second",
        "classes", "radius", "factor", "score",
    ] = "fraction"  # fmt: skip
    condition: dict[str, Scalar] = Field(
        default_factory=dict, description="Corruption, severity, norm, eps, class, ..."
    )

    @property
    def told(self) -> str:
        """The score in a few words."""
        interval = f" {self.interval_told}" if self.interval_told else ""
        return f"{self.metric} {self.value:.4g}{interval}, n = {self.n:,}"

    @property
    def interval_told(self) -> str:
        """The ends of the interval; nothing where there is none."""
        return "" if self.ci_low is None else f"[{self.ci_low:.4g}, {self.ci_high:.4g}]"


class CellKey(_Document):
    """What a cell is about; two cells with equal keys would give the same scores."""

    model: str
    entry: str = Field("", description="The recipe's entry; models of one entry are its runs.")
    training_seed: int | None = Field(None, description="Where an entry has several seeds.")
    sweep: dict[str, Scalar] = Field(
        default_factory=dict, description="The value of the parameter that an entry sweeps."
    )
    measure: str
    data: str
    params: dict[str, Any] = Field(default_factory=dict)
    seed: int = 0
    model_options: dict[str, Any] = Field(default_factory=dict)
    model_fingerprint: str = ""
    data_fingerprint: str = ""
    words: str = Field(
        "",
        description="What a text tower is told, by convention and digest, such as "
        "`fusionbench:8fd45ee96f83`; `data` stands for the data's own names and templates.",
    )
    seen: str = Field(
        "",
        description="A digest of the images that the model is known to have seen; which of the "
        "measured ones it has seen follows from it.",
    )
    precision: Literal["fp32", "tf32", "bf16"] = Field(
        "fp32", description="In which a measure's forward passes were to be made."
    )
    compiled: bool = Field(False, description="Whether they were to be compiled.")
    contents: dict[str, str] = Field(
        default_factory=dict,
        description="What lies in folders that parameters name by their place, by its record.",
    )


class DataFacts(_Document):
    """The images that were scored."""

    name: str
    split: str
    n: int
    classes: int
    fingerprint: str
    licence: str = "unknown"


class ModelFacts(_Document):
    """The model that was scored."""

    name: str
    source: str
    fingerprint: str
    architecture: str = ""
    parameters: int = 0
    preprocessing: str = ""
    class_space: str = Field("", description="How the model's outputs meet the data's classes.")
    trained_on: dict[str, str] = Field(
        default_factory=dict, description="Corruptions that its training held, and by what."
    )


class Provenance(_Document):
    """The code and machine that made the numbers."""

    stockpot: str
    commit: str = ""
    dirty: bool | None = None
    python: str = ""
    torch: str = ""
    pillow: str = Field("", description="It decodes the pictures; empty in older results.")
    platform: str = ""
    device: str = ""
    created: str = ""


class Cost(_Document):
    """What it took."""

    wall_seconds: float
    device: str
    peak_memory_bytes: int | None = None
    images: int = Field(0, description="Forward passes, counted in images.")
    queries: int | None = None
    stages: dict[str, float] = Field(
        default_factory=dict,
        description="Seconds by stage since the last result of the same process, in which models "
        "and data were loaded too; no part of the question.",
    )
    together: int = Field(
        1,
        description="Models that went through the data together; each one's seconds are its own "
        "and an equal part of what they shared, and of the stages it has an equal part.",
    )


class ForwardFacts(_Document):
    """How the forward passes of a measure were made in the end."""

    precision: str = "fp32"
    compiled: bool = False
    folded: bool = Field(False, description="Batch norms folded into convolutions, on a copy.")
    fused: bool | Literal["cudnn", "triton"] = Field(
        False, description="Whose kernel makes bias, sum and ReLU of a block at once, if one does."
    )
    graph: bool = Field(False, description="Recorded once as a CUDA graph and replayed.")
    memory_format: Literal["contiguous", "channels_last"] = "contiguous"
    batch_size: int | None = Field(None, description="Images per pass at most, in the end.")

    def __str__(self) -> str:
        layout = "NHWC" if self.memory_format == "channels_last" else ""
        fused = f"fused by {self.fused}" if isinstance(self.fused, str) else "fused"
        steps = {"compiled": self.compiled, "folded": self.folded, fused: bool(self.fused)}
        steps |= {"CUDA graph": self.graph}
        said = [self.precision, *(name for name, done in steps.items() if done), layout]
        return ", ".join(filter(None, said))


class Picture(_Document):
    """A few small images side by side, with what there is to say of them."""

    png: str = Field(description="base64 of a PNG.")
    facts: dict[str, Scalar] = Field(default_factory=dict)


class Flag(_Document):
    """A sign that the numbers may not be what they seem: a fact with a name, for programs.

    The notes say the same to people.
    """

    name: str = Field(description="Such as `non_finite` or `randomised`.")
    count: int = Field(description="How often it was seen.")
    of: int = Field(description="How often it could have been.")
    condition: dict[str, Scalar] = Field(
        default_factory=dict, description="Norm, eps, ... where it does not hold for the whole."
    )


Verdict = Literal["cleared", "suspicious", "convicted"]
"""Of one check, or of a model: the worst of its checks."""


class Finding(_Document):
    """What one check of an audit found, and the rule that judged it."""

    name: str
    verdict: Verdict
    count: int = Field(description="Images that speak against the model.")
    of: int = Field(description="Images that were asked.")
    low: float = Field(0.0, description="99 % sure: at least this share of all images would.")
    rule: str = Field(description="What count was allowed, written before it was known.")
    words: str = Field(description="What was seen, in one sentence.")


class CellResult(_Document):
    """One finished cell."""

    schema_version: Literal[2] = 2
    key: CellKey
    scores: list[Score]
    data: DataFacts
    model: ModelFacts
    convention: str = Field("", description="Named rule of the numbers, e.g. `top1:argmax`.")
    provenance: Provenance
    cost: Cost
    forward: ForwardFacts | None = Field(
        None, description="None where a measure does not run the model by `context.passes`."
    )
    outcomes: dict[str, str] = Field(
        default_factory=dict,
        description="Per-image yes/no records as base64 of packed bits; length is data.n.",
    )
    outcome_sizes: dict[str, int] = Field(
        default_factory=dict, description="The length of records that are about other images."
    )
    seen: str = Field(
        "", description="Which images were seen when the model was made, as outcomes are written."
    )
    groups: str = Field(
        "",
        description="Which images belong together, such as copies of one original: a number for "
        "each, as its difference to the one before in 64 bits, deflated, in base64.",
    )
    labels: str = Field(
        "",
        description="The class of each image, as a place in `label_names`, written as groups are; "
        "empty in results of before this was kept.",
    )
    label_names: list[str] = Field(
        default_factory=list, description="The classes that occur among the images."
    )
    samples: str = Field(
        "",
        description="The sha256 of the parquet file of per-image records beside this one; empty "
        "where none was asked for.",
    )
    notes: list[str] = Field(default_factory=list)
    flags: list[Flag] = Field(default_factory=list)
    findings: list[Finding] = Field(default_factory=list, description="Of an audit.")
    pictures: list[Picture] = Field(default_factory=list)

    def __repr__(self) -> str:
        cell = f"{self.key.model} x {self.key.measure} x {self.key.data}"
        first = f"{self.scores[0].told}, " if self.scores else ""
        return f"CellResult({cell}: {first}{len(self.scores)} scores)"

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        shown = [
            [
                score.metric,
                ", ".join(f"{key} {value}" for key, value in score.condition.items()),
                f"{score.value:.4g}",
                score.interval_told,
                f"{score.n:,}",
            ]
            for score in self.scores[:SHOWN_SCORES]
        ]
        more = len(self.scores) - len(shown)
        title = f"{self.key.model} x {self.key.measure} x {self.key.data}"
        title += f": the first {len(shown)} of {len(self.scores)} scores" if more else ""
        return table_html(["metric", "condition", "value", "95 % interval", "n"], shown, title)

    def outcome(self, name: str) -> NDArray[np.bool_]:
        """A per-image record, such as `correct`, as booleans."""
        return unpack_bits(self.outcomes[name], self.outcome_sizes.get(name, self.data.n))

    @property
    def seen_images(self) -> NDArray[np.bool_] | None:
        """For each image whether it was seen when the model was made; None where none was."""
        return unpack_bits(self.seen, self.data.n) if self.seen else None

    @property
    def image_groups(self) -> NDArray[np.int64] | None:
        """For each image the number of the group it belongs to; None where each stands alone."""
        return unpack_groups(self.groups) if self.groups else None

    @property
    def image_labels(self) -> NDArray[np.int64] | None:
        """For each image the place of its class in `label_names`; None in older results."""
        return unpack_groups(self.labels) if self.labels else None

    def score(self, metric: str, **condition: Scalar) -> Score:
        """The one score of that metric whose condition contains these items."""
        for score in self.scores:
            if score.metric == metric and condition.items() <= score.condition.items():
                return score
        raise KeyError(f"{metric} {condition}")
