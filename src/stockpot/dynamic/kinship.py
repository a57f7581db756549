"""Whether an oracle is the model under test: by its weights, and by how the two answer.

Bits tell a copy, and nothing else: a copy in half precision, with its channels in another order or
its norms folded has none in common. So both are also asked about pictures that no training teaches
an answer to (noise, shuffled patches, negatives): two networks that agree there are one function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stockpot.dynamic.oracle import Oracle
from stockpot.errors import UserError

_SMALLEST = 16  # entries; tiny tensors coincide by chance or by initialisation
_SAME = 0.98
_AKIN = 0.6  # in the zoo strangers reach 0.46, and networks that were trained from one start 0.72
_EQUAL = 0.01  # mean total variation of two functions' shares
_VARIES = 0.01
_TOO_EASY = 0.9


def shared_weights(model: nn.Module, networks: Sequence[nn.Module]) -> float:
    """The share of the model's weights that one of the networks holds bit for bit."""
    return shared_tensors(model, [t for each in networks for t in each.state_dict().values()])


def shared_tensors(model: nn.Module, tensors: Iterable[Tensor]) -> float:
    """The share of the model's weights that stand among these tensors bit for bit."""
    known = {mark for mark, _ in _marks(tensors)}
    own = _marks(model.state_dict().values())
    total = sum(count for _, count in own)
    return sum(count for mark, count in own if mark in known) / total if total else 0.0


class Likeness(NamedTuple):
    """How alike two functions answer."""

    agreement: float
    """Of answers, beyond chance (Cohen's kappa); 1 where all agree, 0 where chance would do it."""
    same: bool
    """Whether they are one function as far as the probes tell."""


def probes(pixels: Tensor, seed: int = 0) -> Tensor:
    """Pictures without a right answer, of the size of those given: smooth noise, patches of the
    pictures in another order, and their negatives."""
    generator = torch.Generator().manual_seed(seed)
    size = tuple(pixels.shape[-2:])
    noise = [
        F.interpolate(torch.rand(8, 3, side, side, generator=generator), size=size, mode="bilinear")
        for side in (2, 3, 5, 8, 16)
    ]
    shown = pixels[:16].cpu()
    halves = [torch.roll(shown, (size[0] // 2, size[1] // 3), dims=(2, 3)), shown.flip(1)]
    return torch.cat([*noise, *halves, 1 - shown]).to(pixels.device)


def likeness(first: Tensor, second: Tensor) -> Likeness:
    """Of two functions, by their shares for each probe and class (the same classes)."""
    one, other = first.argmax(dim=1), second.argmax(dim=1)
    observed = float((one == other).float().mean())
    count = max(first.shape[1], second.shape[1])
    often = [torch.bincount(answers, minlength=count) / len(answers) for answers in (one, other)]
    chance = float((often[0] * often[1]).sum())
    kappa = (observed - chance) / (1 - chance) if chance < 1 else 0.0
    # Two functions that nearly always say one class agree by chance; then only shares can tell.
    varies = float(first.std(dim=0).max()) > _VARIES
    equal = varies and float((first - second).abs().sum(dim=1).mean()) / 2 <= _EQUAL
    return Likeness(kappa, equal or (chance < _TOO_EASY and kappa >= _SAME))


def refuse_kin(model: nn.Module, oracle: Oracle, *, force: bool) -> str:
    """Raise where oracle and model share weights; when forced, the sentence to note instead."""
    share = shared_weights(model, oracle.networks)
    if not share:
        return ""
    what = f"the oracle {oracle.name} shares {100 * share:.0f} % of the weights of the model"
    return _refused(what, force)


def refuse_twin(
    answers: Callable[[Tensor], Tensor], oracle: Oracle, on: Tensor, *, force: bool
) -> list[str]:
    """Raise where the oracle answers as the model does; what else is to be noted.

    Args:
        answers: the model's shares for images among the data's classes.
        oracle: who is to judge the model; of several, each by itself.
        on: some images of the data.
        force: note it instead of raising.
    """
    notes = []
    shown = probes(on)
    for member in getattr(oracle, "members", (oracle,)):
        if not member.networks:
            continue  # people, who have not seen the probes
        with torch.no_grad():
            own = answers(shown)
            found = likeness(own, member.judge(shown)[:, : own.shape[1]])
        percent = f"{100 * found.agreement:.0f} %"
        if found.same:
            what = (
                f"on {len(shown)} pictures without a right answer the oracle {member.name} agrees "
                f"to {percent} beyond chance with, and so is the same function as, the model"
            )
            notes.append(_refused(what, force))
        elif found.agreement >= _AKIN:
            notes.append(
                f"the oracle {member.name} may be kin of the model: on pictures without a right "
                f"answer they agree to {percent} beyond chance"
            )
    return notes


def _refused(what: str, force: bool) -> str:
    if not force:
        raise UserError(
            f"{what} under test; it would judge its own mistakes.",
            hint="Choose another oracle, or force=true if that is what you want to see.",
        )
    return f"{what}: its verdicts are not independent (forced)"


def _marks(tensors: Iterable[Tensor]) -> list[tuple[str, int]]:
    marks = []
    for tensor in tensors:
        if tensor.numel() >= _SMALLEST and tensor.is_floating_point() and not _is_constant(tensor):
            flat = tensor.detach().cpu().float().contiguous()
            text = f"{tuple(flat.shape)}:".encode() + flat.numpy().tobytes()
            marks.append((hashlib.sha256(text).hexdigest(), tensor.numel()))
    return marks


def _is_constant(tensor: Tensor) -> bool:
    # Fresh norms are all ones or zeros in every network.
    return bool(torch.all(tensor == tensor.flatten()[0]))
