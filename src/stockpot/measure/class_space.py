"""How a model's outputs meet a dataset's classes.

Names are compared without regard to case, spaces, hyphens and underscores. A dataset may cover
only some of a model's classes; then a prediction is the best of all outputs (`all`, the stricter
reading) or the best among the covered ones (`subset`, the convention of ImageNet-R and -A).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from stockpot.errors import BadDataError

ClassSpace = Literal["all", "subset"]


@dataclass(frozen=True)
class ClassMap:
    """For each class of the data, the model's output that stands for it."""

    outputs: Tensor
    space: ClassSpace
    description: str
    note: str = ""

    def project(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and targets in one numbering."""
        if self.space == "subset":
            return logits[:, self.outputs], labels
        return logits, self.outputs[labels]


def match_classes(
    model_classes: tuple[str, ...], data_classes: tuple[str, ...], space: ClassSpace = "all"
) -> ClassMap:
    """Match by name; models that only number their outputs match a dataset of the same size."""
    if model_classes == data_classes:
        return ClassMap(torch.arange(len(data_classes)), space, f"same {len(data_classes)} classes")
    numbered = model_classes == tuple(str(index) for index in range(len(model_classes)))
    if numbered and len(model_classes) == len(data_classes):
        description = f"{len(data_classes)} classes by position (the model does not name them)"
        return ClassMap(torch.arange(len(data_classes)), space, description)
    positions = {_plain(name): index for index, name in enumerate(model_classes)}
    unknown = [name for name in data_classes if _plain(name) not in positions]
    if unknown:
        shown = ", ".join(unknown[:5]) + (", ..." if unknown[5:] else "")
        raise BadDataError(
            f"the data has {len(unknown)} of {len(data_classes)} classes that the model does not "
            f"know: {shown}. The model has {len(model_classes)}: {', '.join(model_classes[:5])}, "
            "...",
            hint="Use data with the model's class names, or give it a label map.",
        )
    outputs = torch.tensor([positions[_plain(name)] for name in data_classes])
    absent = sorted(set(range(len(model_classes))) - set(outputs.tolist()))
    if not absent:
        return ClassMap(outputs, space, f"same {len(data_classes)} classes, matched by name")
    names = ", ".join(model_classes[index] for index in absent[:5])
    more = ", ..." if absent[5:] else ""
    return ClassMap(
        outputs,
        space,
        f"{len(data_classes)} of {len(model_classes)} classes, best of "
        + ("those" if space == "subset" else "all"),
        f"the data has no {len(absent)} of the model's {len(model_classes)} classes: {names}{more}",
    )


def _plain(name: str) -> str:
    return re.sub(r"[\s_\-]+", " ", name).strip().casefold()
