"""Sets of tasks by name: one word stands for all their datasets, in recipes and in commands.

| set | tasks |
|---|---|
| `zoo5` | the five of the embedded CLIP pool: four of them fetched, icons embedded |
| `ta8` | the eight standard tasks of model merging |
| `tall14`, `tall20` | those and six, and twelve, more |
"""

from __future__ import annotations

_EIGHT = ("sun397", "stanford_cars", "resisc45", "eurosat", "svhn", "gtsrb", "mnist", "dtd")
_FOURTEEN = (
    *_EIGHT,
    *("oxford_flowers102", "pcam", "fer2013", "oxford_iiit_pet", "stl10", "cifar100"),
)
_TWENTY = (
    *_FOURTEEN,
    *("cifar10", "food101", "fashion_mnist", "emnist_letters", "kmnist", "rendered_sst2"),
)

TASK_SETS: dict[str, tuple[str, ...]] = {
    "zoo5": ("cifar10", "mnist", "fashion_mnist", "quickdraw", "icons"),
    "ta8": _EIGHT,
    "tall14": _FOURTEEN,
    "tall20": _TWENTY,
}
"""Set -> its datasets, in the customary order."""


def expanded(name: str) -> tuple[str, ...]:
    """The datasets that a name stands for: those of a set, or itself."""
    return TASK_SETS.get(name, (name,))
