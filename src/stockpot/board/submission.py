"""What people say of their results: `submission.yaml` beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from stockpot.errors import UserError

FILE = "submission.yaml"


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AboutModel(_Closed):
    """One model of a submission."""

    title: str = Field("", description="What it is called on the board; its name otherwise.")
    paper: str = Field("", description="A link.")
    code: str = Field("", description="A link.")
    weights: str = Field("", description="A link.")
    additional_data: bool | None = Field(
        None, description="Whether it was trained on more than the data's own training images."
    )
    notes: str = ""

    @field_validator("paper", "code", "weights")
    @classmethod
    def _is_link(cls, given: str) -> str:
        # Anything else in a link, such as a script, would run when a reader clicks it.
        if given and not given.startswith(("https://", "http://")):
            raise ValueError("expected a link that begins with https://")
        return given


class Submission(_Closed):
    """Who submits what."""

    submission: Literal[1] = Field(description="The version of this form.")
    authors: list[str] = Field(min_length=1)
    contact: str = ""
    licence: str = Field("CC-BY-4.0", description="Of the results.")
    key: str = Field("", description="The public key in hex that signed the folder.")
    models: dict[str, AboutModel | None] = Field(
        default_factory=dict, description="By the names that the results have."
    )

    def model(self, name: str) -> AboutModel:
        """What is said of a model; empty where nothing is."""
        return self.models.get(name) or AboutModel()


def read_submission(folder: Path) -> Submission | None:
    """The form in a folder; none where there is none."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        return Submission.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except yaml.YAMLError as problem:
        raise UserError(f"{path} is no YAML: {' '.join(str(problem).split())}.") from problem
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the form"
        raise UserError(f"{path}: {where}: {first['msg']}.") from problem
