"""One copy for all models alike: it is recorded once, and their weights take turns in it.

The members of a soup, a sweep or a pool differ in their weights alone. To copy these into the place
that a recorded pass reads takes a hundredth of a pass; to prepare and to record another copy takes
many passes and the memory of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from stockpot.models.classifier import Classifier
from stockpot.models.forward.folding import folded_weights
from stockpot.models.forward.normalised import InFull

Run = Callable[[Tensor], Tensor]
_CONSTANTS = ("mean", "std", "table")


class Copy:
    """A prepared copy of a model, and where its weights come from."""

    def __init__(self, module: nn.Module, model: Classifier, pairs: list[tuple[str, str]]) -> None:
        """A copy in whatever precision.

        Args:
            module: the copy.
            model: of which it is a copy.
            pairs: names of convolutions and of the batch norms that were folded into them.
        """
        self._pairs = pairs
        self._places: list[Tensor] = []
        self._names: list[str] = []
        self._last: list[Tensor] | None = None
        self.whole = True
        """Whether all that it holds is known to come from the model or to be the same for all."""
        known = folded_weights(model, pairs)
        heads = [name for name, part in module.named_modules() if isinstance(part, InFull)]
        for found in (module.named_parameters(), module.named_buffers()):
            for name, place in found:
                head = next((each for each in heads if name.startswith(f"{each}.layer.")), None)
                source = name.replace(f"{head}.layer.", f"{head}.") if head else name
                if source in known:
                    self._places.append(place)
                    self._names.append(source)
                # Pixels are prepared alike, and a convolution without a bias was given zeros.
                elif name not in _CONSTANTS and not (name.endswith("bias") and not place.any()):
                    self.whole = False

    @torch.inference_mode()
    def weights_of(self, model: Classifier) -> list[Tensor]:
        """A model's weights as the copy has them; the model's own tensors where none is changed."""
        own = folded_weights(model, self._pairs)
        found = [own[name] for name in self._names]
        unlike = [
            turn
            for turn, (value, place) in enumerate(zip(found, self._places, strict=True))
            if value.dtype != place.dtype or value.stride() != place.stride()
        ]
        made = [torch.empty_like(self._places[turn]) for turn in unlike]
        if made:
            torch._foreach_copy_(made, [found[turn] for turn in unlike])
        for turn, value in zip(unlike, made, strict=True):
            found[turn] = value
        return found

    def holds(self, weights: list[Tensor]) -> bool:
        """Whether these are its weights now, bit for bit."""
        pairs = list(zip(self._places, weights, strict=True))
        if any(own.shape != given.shape for own, given in pairs):
            return False
        # A GPU is asked once for all of them: to ask for each would wait for it each time.
        same = [(own == given).all() for own, given in pairs]
        return not same or bool(torch.stack(same).all())

    @torch.inference_mode()
    def take(self, weights: list[Tensor]) -> None:
        """Hold these weights, unless they were the last that it was given."""
        if self._last is not weights:
            torch._foreach_copy_(self._places, weights)
            self._last = weights


@dataclass(frozen=True, eq=False)
class Turn:
    """A model's weights and the copy in which they take turns with others."""

    copy: Copy
    weights: list[Tensor]

    @classmethod
    def first(cls, copy: Copy, model: Classifier) -> Turn | None:
        """The turn of the model of which the copy was made; none where others may have none."""
        weights = copy.weights_of(model)
        return cls(copy, weights) if copy.whole and copy.holds(weights) else None

    def begin(self) -> None:
        """Put the weights into the copy, unless they are there."""
        self.copy.take(self.weights)

    def around(self, run: Run) -> Run:
        """A pass over the copy with these weights."""

        def own(pixels: Tensor) -> Tensor:
            self.begin()
            return run(pixels)

        return own


@dataclass(eq=False)
class Recorded:
    """A recorded pass over a copy, for as many images as it was made with, or fewer."""

    copy: Copy
    run: Run
    size: int
    steps: tuple[str, ...]


recorded: WeakValueDictionary[Hashable, Recorded] = WeakValueDictionary()
"""By what a pass was recorded for; kept by the passes that use it, and gone with the last."""
