"""A network made of a state dict, so that data-driven methods can be put under the same laws."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from pico import make_classifier, make_dataset
from stockpot.datasets.dataset import Dataset
from stockpot.models.classifier import Classifier

CLASSES = tuple(f"class {index}" for index in range(12))


class StateNetwork(nn.Module):
    """Holds the tensors of the laws under their names; its logits depend on nearly all of them."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        held: dict[int, nn.Parameter] = {}
        for name, value in state.items():
            parent, _, leaf = name.rpartition(".")
            module: nn.Module = self
            for part in parent.split(".") if parent else ():
                if not hasattr(module, part):
                    module.add_module(part, nn.Module())
                module = getattr(module, part)
            if not value.is_floating_point() or "running" in name:
                module.register_buffer(leaf, value.clone())
            else:  # one tensor under two names stays one
                held.setdefault(id(value), nn.Parameter(value.clone()))
                module.register_parameter(leaf, held[id(value)])

    def forward(self, pixels: Tensor) -> Tensor:
        found = F.conv2d(pixels, self.embeddings.patch_embedding.weight, stride=4)
        found = found.flatten(1).view(len(pixels), 12, -1).mean(dim=2)
        first, second = self.encoder.layers.children()
        found = F.layer_norm(found, (12,)) * first.norm.weight
        found = F.linear(found, first.fc1.weight, first.fc1.bias).relu()
        found = F.linear(found, second.fc1.weight)
        found = F.batch_norm(found, self.bn.running_mean, self.bn.running_var)
        return found * self.scale


def architecture(state: dict[str, Tensor]) -> Classifier:
    return make_classifier(StateNetwork(state), CLASSES, size=8)


def law_data() -> Dataset:
    return make_dataset(16, 8, CLASSES)
