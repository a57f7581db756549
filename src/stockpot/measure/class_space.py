"""How a model's outputs meet a dataset's classes; see `stockpot.models.class_space`."""

from __future__ import annotations

from stockpot.models.class_space import ClassMap, ClassSpace, match_classes

__all__ = ["ClassMap", "ClassSpace", "match_classes"]
