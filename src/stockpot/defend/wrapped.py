"""A classifier around another one."""

from __future__ import annotations

import hashlib
from pathlib import Path

from stockpot.errors import UserError
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.preprocess import Preprocess


class Wrapped(Classifier):
    """Another classifier behind a defence, with the classes of the one inside."""

    def __init__(self, inner: Classifier, label: str, preprocess: Preprocess | None = None) -> None:
        """Wrap a classifier.

        Args:
            inner: the classifier.
            label: the defence with its parameters, for results.
            preprocess: how pictures come to the defence, where not as they come to `inner`.
        """
        whole = f"{inner.origin.fingerprint}:{label}"
        origin = Origin(
            source=f"{inner.origin.source} + {label}",
            architecture=inner.origin.architecture,
            fingerprint=hashlib.sha256(whole.encode()).hexdigest(),
        )
        super().__init__(inner.network, preprocess or inner.preprocess, inner.classes, origin)
        self.inner = inner
        self.behind = f"{inner.behind} + {label}"

    def save(self, folder: str | Path) -> Path:
        """A defence is not part of a checkpoint."""
        raise UserError(
            f"{self.origin.source}: expected a model without a defence to save.",
            hint="Save the model itself, and name the defence in the recipe.",
        )
