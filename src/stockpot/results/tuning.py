"""The file of a search, `tune.json`: the question, every trial, the front, the choice, the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stockpot.errors import UserError
from stockpot.files import write_atomic

TUNE_FILE = "tune.json"


class _Plain(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class TunedObjective(_Plain):
    """One thing that was raised or lowered."""

    name: str
    higher: bool = True
    share: bool = Field(True, description="A share of images or the like, shown as a percentage.")


class TunedTrial(_Plain):
    """One merge that was tried on validation images."""

    number: int
    state: Literal["complete", "pruned", "failed"]
    method: str
    params: dict[str, Any] = Field(default_factory=dict)
    values: dict[str, float] = Field(default_factory=dict, description="By objective.")
    tasks: dict[str, list[float]] = Field(default_factory=dict, description="And by task.")
    seconds: float = 0.0
    problem: str = Field("", description="Why it failed.")
    command: str = Field("", description="Makes the same weights.")


class TunedSelection(_Plain):
    """The bootstrap over the selection, for one objective."""

    value: float
    low: float
    high: float
    share: float
    optimism: float


class TunedScore(_Plain):
    """The chosen merge on test images, for one objective."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int = 0
    tasks: list[float] = Field(default_factory=list)
    default: float | None = Field(None, description="The same of the method's defaults.")
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None


class TuneResult(_Plain):
    """A search."""

    tune_version: Literal[1] = 1
    digest: str = ""
    methods: list[str]
    members: dict[str, str]
    base: str = ""
    data: list[str]
    test_data: list[str] = Field(default_factory=list)
    test_content: list[str] = Field(default_factory=list, description="Their fingerprints.")
    images: int = Field(0, description="Of validation.")
    objectives: list[TunedObjective]
    knobs: dict[str, str] = Field(default_factory=dict, description="Name -> range or choices.")
    sampler: str
    prune: str
    seed: int
    wanted: int
    finished: bool = False
    trials: list[TunedTrial] = Field(default_factory=list)
    front: list[int] = Field(default_factory=list, description="Numbers of trials unbeaten.")
    chosen: int | None = None
    default: int | None = Field(None, description="The trial of the method's own defaults.")
    selection: dict[str, TunedSelection] = Field(default_factory=dict)
    test: dict[str, TunedScore] = Field(default_factory=dict)
    test_looks: int = Field(0, description="How many choices have been scored on test images.")
    notes: list[str] = Field(default_factory=list)
    stages: dict[str, float] = Field(
        default_factory=dict,
        description="Seconds by stage of the process that ended the search, or wrote this so far.",
    )

    def trial(self, number: int) -> TunedTrial:
        """A trial by its number."""
        return next(one for one in self.trials if one.number == number)


def write_tuning(folder: Path, result: TuneResult) -> Path:
    """Write the file whole."""
    path = folder / TUNE_FILE
    write_atomic(path, result.model_dump_json(indent=1) + "\n")
    return path


def read_tuning(folder: Path) -> TuneResult | None:
    """The search of a folder; none where there is no file."""
    path = folder / TUNE_FILE if folder.is_dir() else folder
    if not path.is_file():
        return None
    try:
        return TuneResult.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, ValueError) as problem:
        raise UserError(f"{path} is not the file of a search: {problem}") from problem
