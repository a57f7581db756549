"""Among which outputs a model is usually scored on a set: all of its own, or the set's.

ImageNet-A and -R have 200 of the 1000 classes, ObjectNet 113 and cue conflict 16 categories; their
authors score a model of 1000 classes among those. Everywhere else all outputs compete.
"""

from __future__ import annotations

from typing import Literal

from stockpot.score.class_space import ClassSpace

Space = Literal["usual", "all", "subset"]
AMONG_THEIR_OWN = frozenset(("imagenet_a", "imagenet_r", "objectnet", "cue_conflict"))


def usual_space(name: str) -> ClassSpace:
    """The customary reading for the dataset of this name."""
    return "subset" if name in AMONG_THEIR_OWN else "all"


def settled_space(space: Space, name: str) -> ClassSpace:
    """What was asked for, or the customary reading."""
    return usual_space(name) if space == "usual" else space
