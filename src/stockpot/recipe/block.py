"""What blocks of a recipe have in common: which keys they take."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Closed(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class WithParams(BaseModel):
    """Keys that are not listed are parameters of the method, checked against its signature."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    @property
    def params(self) -> dict[str, Any]:
        """The keys beyond the listed ones."""
        return dict(self.model_extra or {})
