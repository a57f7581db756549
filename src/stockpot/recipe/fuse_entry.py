"""A fusion in a recipe: its method, its members, and what follows."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from stockpot.recipe.block import WithParams


class FuseEntry(WithParams):
    """A fusion of several models."""

    method: str = Field(description="Its parameters stand beside it.")
    models: list[str] = Field(min_length=1, description="The members, by their names.")
    base: str | None = Field(None, description="What their changes are taken from.")
    data: list[str] | str | None = Field(
        None, description="For data-driven methods: one dataset per model, or one for all."
    )
    save: str | None = Field(None, description="Where to write what the method learned.")
    load: str | None = Field(None, description="What the method learned before.")
    then: str | list[str | dict[str, Any]] | dict[str, dict[str, Any] | None] | None = Field(
        None, description="What follows on the merged change (`stockpot list finishers`)."
    )

    @property
    def params(self) -> dict[str, Any]:
        """The method's parameters, and what follows it."""
        return super().params | ({} if self.then is None else {"then": self.then})

    @property
    def datasets(self) -> list[str]:
        """The names of the datasets, in order."""
        return [self.data] if isinstance(self.data, str) else list(self.data or ())
