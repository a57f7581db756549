"""Whether an oracle is the model under test, or shares weights with it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from stockpot.dynamic.oracle import Oracle
from stockpot.errors import UserError

_SMALLEST = 16  # entries; tiny tensors coincide by chance or by initialisation


def shared_weights(model: nn.Module, networks: Sequence[nn.Module]) -> float:
    """The share of the model's weights that one of the networks holds bit for bit."""
    known = {mark for network in networks for mark, _ in _marks(network)}
    own = _marks(model)
    total = sum(count for _, count in own)
    return sum(count for mark, count in own if mark in known) / total if total else 0.0


def refuse_kin(model: nn.Module, oracle: Oracle, *, force: bool) -> str:
    """Raise where oracle and model share weights; when forced, the sentence to note instead."""
    share = shared_weights(model, oracle.networks)
    if not share:
        return ""
    what = f"the oracle {oracle.name} shares {100 * share:.0f} % of the weights of the model"
    if not force:
        raise UserError(
            f"{what} under test; it would judge its own mistakes.",
            hint="Choose another oracle, or force=true if that is what you want to see.",
        )
    return f"{what}: its verdicts are not independent (forced)"


def _marks(network: nn.Module) -> list[tuple[str, int]]:
    marks = []
    for tensor in network.state_dict().values():
        if tensor.numel() >= _SMALLEST and tensor.is_floating_point() and not _is_constant(tensor):
            flat = tensor.detach().cpu().float().contiguous()
            text = f"{tuple(flat.shape)}:".encode() + flat.numpy().tobytes()
            marks.append((hashlib.sha256(text).hexdigest(), tensor.numel()))
    return marks


def _is_constant(tensor: Tensor) -> bool:
    # Fresh norms are all ones or zeros in every network.
    return bool(torch.all(tensor == tensor.flatten()[0]))
