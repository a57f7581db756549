"""A model that is measured on some images at a time, beside its baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.dynamic.references import all_references
from stockpot.errors import UserError
from stockpot.gate.rules_file import Rules
from stockpot.measure import measures
from stockpot.measure.by_content import without_place
from stockpot.measure.from_outcomes import part_of
from stockpot.measure.run import measure
from stockpot.measure.specs import Source
from stockpot.results.packed import pack_bits, pack_labels
from stockpot.results.paired.pairing import otherwise
from stockpot.results.schema import CellResult

_MODEL, _BASELINE = "model", "baseline"


class Measured:
    """A model, its baseline (a model too, or results on the same images), and the data."""

    def __init__(
        self,
        rules: Rules,
        model: Source,
        data: str | Path | Dataset,
        results: Sequence[CellResult] | None,
        baseline: Source | None,
        seed: int,
        device: str,
        data_options: Mapping[str, Any],
        model_options: Mapping[str, Any],
    ) -> None:
        whole = data if isinstance(data, Dataset) else load_dataset(str(data), **data_options)
        self.data = whole
        self._models = {_MODEL: model} | ({} if baseline is None else {_BASELINE: baseline})
        self._rules, self._seed, self._device = rules, seed, device
        self._options = model_options
        self._seen: dict[str, int] = {}
        self._known = {} if results is None else self._by_measure(results)
        labels = self.data.groups
        self.groups = None if labels is None else np.unique(labels, return_inverse=True)[1]
        self.classes = pack_labels(self.data.labels.numpy(), self.data.classes)[1]

    def _by_measure(self, results: Sequence[CellResult]) -> dict[str, CellResult]:
        """Results of the baseline for the measures that rules compare."""
        found = {}
        for name in {rule.target.measure for rule in self._rules.rules if rule.relative}:
            own = [cell for cell in results if cell.key.measure == name]
            alike = [cell for cell in own if cell.data.fingerprint == self.data.fingerprint]
            if not alike:
                where = "on other images" if own else "nowhere"
                count = len(self.data)
                raise UserError(
                    f"the baseline has {name} {where}, not on the {count} images of {self.data}.",
                    hint="Give the same --data, --split and --limit, or --baseline-model.",
                )
            if len(alike) > 1:
                raise UserError(f"the baseline has {len(alike)} results of {name} on {self.data}.",
                                hint="Name the one that is meant by its file.")  # fmt: skip
            found[name] = alike[0]
        return found

    def look(self, name: str, rows: NDArray[np.int64]) -> tuple[CellResult, CellResult | None]:
        """Measure on these rows."""
        known = self._known.get(name)
        params = self._rules.measure.get(name)
        if params is None:
            params = dict(known.key.params) if known else {}
            if lost := without_place(params, all_references(measures.get(name), params)):
                raise UserError(
                    f"{name}: the baseline was measured with {lost[0]} known by its content alone.",
                    hint=f"Say under `measure: {name}:` where it is.",
                )
        # Random draws of an image follow from seed and row; those of two blocks must not be equal.
        seen = self._seen.get(name, 0)
        self._seen[name] = seen + len(rows)
        found = measure(
            self._models, {name: params}, data=self.data.take(rows.tolist()),
            seed=self._seed + seen,
            device=self._device, model_options=self._options,
        )  # fmt: skip
        by_name = {cell.key.model: cell for cell in found}
        if known is None:
            return by_name[_MODEL], by_name.get(_BASELINE)
        if unlike := otherwise(by_name[_MODEL].key.params, known.key.params):
            raise UserError(
                f"{name}: the baseline was measured under other settings ({', '.join(unlike)})."
            )
        return by_name[_MODEL], in_rows(known, rows)


def in_rows(cell: CellResult, rows: NDArray[np.int64]) -> CellResult:
    """A result on some of its images, in this order."""
    part = part_of(cell, np.isin(np.arange(cell.data.n), rows))
    # `part_of` keeps the order of the data; a block has its own.
    ranks = np.argsort(np.argsort(rows))
    outcomes = {
        name: bits if name in part.outcome_sizes else pack_bits(part.outcome(name)[ranks])
        for name, bits in part.outcomes.items()
    }
    return part.model_copy(update={"outcomes": outcomes, "groups": "", "labels": ""})
