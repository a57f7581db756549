"""Merges in memory: fused weights go straight into working models, one for each dataset.

No folder is written for a trial but where a method makes a module with a forward of its own, which
is then made in a temporary folder.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from stockpot.checkpoints.locate import locate
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.source import Source
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError
from stockpot.fuse import fusers
from stockpot.fuse.learning.names import tensor_places
from stockpot.fuse.run import fuse
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_for, words_for
from stockpot.models.zero_shot import ZeroShotNetwork, with_classes
from stockpot.stages import stage

Member = str | Path | Classifier


class Merges:
    """The members of a search, and models that become any merge of them."""

    def __init__(
        self,
        members: Mapping[str, Member],
        base: Member | None,
        data: Sequence[Dataset],
        *,
        device: torch.device,
        tasks: Any = None,
    ) -> None:
        """Find out where the weights go.

        Args:
            members: the models to merge.
            base: what they were tuned from.
            data: what merges are measured on; a model for each.
            device: where they run.
            tasks: data to learn from, for methods that do.
        """
        self.members, self.base, self.data = dict(members), base, list(data)
        self.device, self.tasks = device, tasks
        self._models: list[Classifier] = []
        self._places: dict[str, str] = {}

    @contextmanager
    def merged(self, method: str, params: Mapping[str, Any]) -> Iterator[list[Classifier]]:
        """The merge, as a model for each dataset; they are others at the next call."""
        entry = fusers.get(method)
        settings = {"base": self.base, **params}
        if entry.tags.learns:
            settings |= {"tasks": self.tasks, "device": str(self.device)}
        if _makes_module(method, params):
            with TemporaryDirectory(prefix="stockpot-") as place:
                with stage("merge"):
                    folder = fuse(method, self.members, out=Path(place) / "model", **settings)
                    models = [load_for(folder, one, device=self.device) for one in self.data]
                yield models
            return
        with stage("merge"):
            made = fuse(method, self.members, **settings)
            if any(isinstance(value, Mapping) for value in made.values()):
                models = self._each(method, list(made.values()))
            else:
                models = self._all(made)
        yield models

    def _all(self, state: Mapping[str, Tensor]) -> list[Classifier]:
        """One merge for all datasets."""
        models = self._ready(state)
        # Dual encoders with several heads share their towers.
        networks = {id(_core(model)): model for model in models}
        for model in networks.values():
            self._put(model, state)
        if any(".text_" in place for place in self._places.values()):
            for model in models:
                if isinstance(model.network, ZeroShotNetwork):
                    model.network.renew_head()
        return models

    def _each(self, method: str, states: Sequence[Mapping[str, Tensor]]) -> list[Classifier]:
        """A merge for each dataset, of methods that make one model per member."""
        if len(states) != len(self.data):
            raise BadParameterError(
                f"{method}: makes a model per member ({len(states)}); expected as many datasets, "
                f"in the order of the members, got {len(self.data)}."
            )
        first = self._ready(states[0])
        models = [copy.deepcopy(model) for model in first]
        for model, state in zip(models, states, strict=True):
            self._put(model, state)
        return models

    def _ready(self, state: Mapping[str, Tensor]) -> list[Classifier]:
        if not self._models:
            source = self.base if self.base is not None else next(iter(self.members.values()))
            first = load_for(source, self.data[0])
            model = copy.deepcopy(first) if isinstance(source, Classifier) else first
            model = model.to(self.device).eval()
            self._models = [model, *(self._beside(model, source, one) for one in self.data[1:])]
            names = [name for name, values in state.items() if values.is_floating_point()]
            self._places = _places(names, model, source, self.data[0])
        return self._models

    def _beside(self, model: Classifier, source: Member, data: Dataset) -> Classifier:
        """The same weights for other data."""
        if isinstance(model.network, ZeroShotNetwork):
            words = words_for(source, data)
            if words is not None:
                return with_classes(model, data.classes, words).to(self.device)
        return model

    def _put(self, model: Classifier, state: Mapping[str, Tensor]) -> None:
        into = model.state_dict(keep_vars=True)
        with torch.no_grad():
            for name, place in self._places.items():
                into[place].copy_(state[name])


def _core(model: Classifier) -> Any:
    return getattr(model.network, "model", model.network)


def _places(
    names: Sequence[str], model: Classifier, source: Member, data: Dataset
) -> dict[str, str]:
    """For every fused tensor its place in the working model."""
    if isinstance(source, Classifier):
        network = getattr(source.network, "model", source.network)
        template: Source = open_checkpoint(network.state_dict(), label="model")
    else:
        template = open_checkpoint(locate(source))
    return tensor_places(
        names, model, template, template.tensors(), lambda folder: load_for(folder, data)
    )


def _makes_module(method: str, params: Mapping[str, Any]) -> bool:
    """Whether a method gives a module, which its folder alone can be loaded from."""
    from stockpot.fuse.learning.learner import ModuleFuser

    entry = fusers.get(method)
    if not entry.tags.learns:
        return entry.tags.together
    own = {row.name for row in entry.parameters}
    return isinstance(entry(**{k: v for k, v in params.items() if k in own}), ModuleFuser)
