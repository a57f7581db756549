"""A copy of a model with all that a way does to its weights and layers."""

from __future__ import annotations

from copy import deepcopy
from typing import cast

import torch
from torch import Tensor, nn

from stockpot.models.classifier import Classifier
from stockpot.models.forward.arithmetic import products
from stockpot.models.forward.folding import Looked, folded_copy, is_folded
from stockpot.models.forward.fused.layers import with_pools
from stockpot.models.forward.fused.tokens import with_tokens
from stockpot.models.forward.joining import ends_seen, join_seen
from stockpot.models.forward.normalised import normalised
from stockpot.models.forward.own_answers import unheard
from stockpot.models.forward.packed import pack
from stockpot.models.forward.ways import Steps


def changed_copy(model: Classifier, steps: Steps, few: Tensor, looked: Looked) -> nn.Module:
    """The copy for a way.

    Args:
        model: what is copied.
        steps: of the way.
        few: some pixels.
        looked: what the model showed when it was asked about them.

    Raises:
        Exception: of whatever kind; not every module can be copied, and not every copy changed.
    """
    folds = "nhwc" in steps
    with unheard(model), products(tf32=False):
        copy = folded_copy(model, looked.pairs) if folds else deepcopy(model)
        if folds:
            seen = ends_seen(copy, few)
            if not is_folded(looked.answers, seen.answers.float()):
                raise ValueError("folded batch norms would change its answers")
            # Only now: in the other layout cuDNN would make new plans for what is looked at once.
            copy.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            if "joined" in steps and not join_seen(copy, seen.pairs):
                raise ValueError("no ends to join")
            if "joined" in steps:
                with_pools(copy)
        if "tokens" in steps and not with_tokens(copy):
            raise ValueError("no tower that is known")
        if "packed" in steps:
            pack(copy, few if folds else None)
    return normalised(cast(Classifier, copy), half="bf16" in steps)
