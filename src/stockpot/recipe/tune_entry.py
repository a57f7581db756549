"""A search among the models of a recipe."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from stockpot.recipe.block import WithParams


class TuneEntry(WithParams):
    """A fusion whose parameters, or whose method, a search chooses on validation images."""

    method: str | list[str] = Field(description="A fusion method, or several to choose from.")
    models: list[str] = Field(min_length=1)
    base: str | None = None
    data: list[str] | str = Field(description="What the search sees: one dataset per task.")
    test: list[str] | str | None = Field(
        None, description="What the choice is scored on at the end, task by task."
    )
    unseen: list[str] | str = Field(
        default_factory=list, description="Tasks of the objective `unseen`."
    )
    objectives: list[str] | str = Field("clean", description="One to three.")
    space: dict[str, Any] = Field(
        default_factory=dict, description="Ranges and choices; by the method's signature if empty."
    )
    trials: int = Field(100, ge=1, description="Merges to try.")
    sampler: Literal["tpe", "cma", "random", "grid", "nsga2"] = "tpe"
    points: int = Field(5, ge=1, description="Values of each range in a grid.")
    prune: Literal["none", "racing", "median", "halving"] = "none"
    prefer: str = Field("", description="The objective to choose from a front by.")
    measure_params: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Of the measures behind objectives."
    )

    @property
    def sets(self) -> dict[str, list[str]]:
        """The names of its datasets, by key."""
        found = {key: getattr(self, key) or [] for key in ("data", "test", "unseen")}
        return {key: [v] if isinstance(v, str) else list(v) for key, v in found.items()}

    @property
    def methods(self) -> list[str]:
        """The methods that are tried."""
        given = self.method.split(",") if isinstance(self.method, str) else self.method
        return [one.strip() for one in given]
