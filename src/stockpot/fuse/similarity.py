"""How alike the members' changes are: cosines, lengths and shared signs, streamed in fp64."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from stockpot.charts import heat_map
from stockpot.checkpoints.alignment import align
from stockpot.checkpoints.member_names import by_name
from stockpot.checkpoints.open import open_checkpoint
from stockpot.errors import BadParameterError
from stockpot.files import csv_cell, write_atomic
from stockpot.fuse.fuser import Slab
from stockpot.fuse.request import split_options
from stockpot.fuse.stream import Stream, device_for
from stockpot.notebook import table_html

if TYPE_CHECKING:
    from stockpot.fuse.request import Spec


@dataclass(frozen=True)
class SimilarityReport:
    """The geometry of a pool of task vectors."""

    names: tuple[str, ...]
    cosine: Tensor
    """Cosines between the changes, members x members, fp64."""
    norms: Tensor
    """The Euclidean length of each change."""
    sign_agreement: Tensor
    """The share of the weights that both change in which both have one sign."""
    layers: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensor name -> the cosine matrix of that tensor alone."""

    def __repr__(self) -> str:
        mean = sum(self.profile.values()) / max(len(self.layers), 1)
        return (
            f"SimilarityReport({len(self.names)} models: {', '.join(self.names)}; mean cosine over "
            f"{len(self.layers)} tensors {mean:.3f})"
        )

    def _repr_html_(self) -> str:
        rows = [
            [name, f"{float(norm):.3f}", *(f"{value:.3f}" for value in cosines)]
            for name, norm, cosines in zip(
                self.names, self.norms, self.cosine.tolist(), strict=True
            )
        ]
        return table_html(["model", "length", *self.names], rows, "cosine of the changes")

    @property
    def profile(self) -> dict[str, float]:
        """Tensor name -> mean cosine over all pairs."""
        count = len(self.names)
        if count < 2:
            return dict.fromkeys(self.layers, 1.0)
        upper = torch.triu_indices(count, count, offset=1)
        return {name: float(c[upper[0], upper[1]].mean()) for name, c in self.layers.items()}

    def to_csv(self, path: str | Path | None = None) -> str:
        """The cosine matrix as CSV, one row per member; also written when a path is given."""
        text = _table(["", *self.names], zip(self.names, self.cosine.tolist(), strict=True))
        if path is not None:
            write_atomic(Path(path), text)
        return text

    def profile_csv(self, path: str | Path | None = None) -> str:
        """The mean cosine of every tensor as CSV."""
        text = _table(["tensor", "mean_cosine"], ((n, [v]) for n, v in self.profile.items()))
        if path is not None:
            write_atomic(Path(path), text)
        return text

    def to_svg(self, path: str | Path | None = None) -> str:
        """The cosine matrix as a heat map."""
        values, names = self.cosine.tolist(), self.names
        text = heat_map(values, names, names, title="Cosine of task vectors").svg()
        if path is not None:
            write_atomic(Path(path), text)
        return text


def similarity(
    base: Spec, members: Sequence[Spec] | Mapping[str, Spec], **settings: Any
) -> SimilarityReport:
    """Compare what the members changed.

    Args:
        base: the model that the members were fine-tuned from.
        members: as for `fuse`.
        **settings: the options of `stockpot.fuse.request.Options`.
    """
    options, unknown = split_options(settings)
    if unknown:
        raise BadParameterError(f"similarity: unknown option {next(iter(unknown))!r}.")
    named = by_name(members, taken=("base",))
    opened = open_checkpoint(_state(base), label="base")
    sources = [
        open_checkpoint(_state(spec), label=name, base=opened) for name, spec in named.items()
    ]
    alignment = align(
        sources, opened, exclude=options.exclude, intersect=options.intersect, head=options.head
    )
    device = device_for(options.device, heavy=False)
    stream = Stream(alignment, str(device), torch.float32, options.threads)
    (products,) = stream.gather([Products()], alignment.rows)
    return report_of(tuple(named), products)


def _state(spec: Any) -> Any:
    return spec.state_dict() if isinstance(spec, torch.nn.Module) else spec


@dataclass(frozen=True)
class Products:
    """Per tensor: inner products of all pairs, and counts of equal and of any signs."""

    elementwise: bool = True

    def begin(self, count: int) -> dict[tuple[str, int], Tensor]:
        return {}

    def observe(self, seen: dict[tuple[str, int], Tensor], slab: Slab) -> None:
        deltas = slab.stacked_deltas().reshape(slab.count, -1)
        signs = deltas.sign()
        double = deltas.double()
        present = signs.abs()
        together = present @ present.T
        agree = (signs @ signs.T + together) / 2
        seen[slab.name, slab.start] = torch.stack(
            [double @ double.T, agree.double(), together.double()]
        ).cpu()

    def finish(self, parts: Sequence[dict[tuple[str, int], Tensor]]) -> dict[str, Tensor]:
        return sums_of_tensors(parts)


def sums_of_tensors(parts: Sequence[Mapping[tuple[str, int], Tensor]]) -> dict[str, Tensor]:
    """Sums of stretches, by tensor and where they begin, added up in one order per tensor."""
    every = {place: sums for part in parts for place, sums in part.items()}
    totals: dict[str, Tensor] = {}
    for name, start in sorted(every):
        sums = every[name, start]
        totals[name] = totals[name] + sums if name in totals else sums
    return totals


def report_of(names: tuple[str, ...], products: Mapping[str, Tensor]) -> SimilarityReport:
    """What `Products` found, as cosines."""
    inner, agree, together = torch.stack(list(products.values())).sum(dim=0)
    return SimilarityReport(
        names,
        _cosines(inner),
        inner.diagonal().sqrt(),
        torch.where(together > 0, agree / together.clamp(min=1), 1.0),
        {name: _cosines(parts[0]) for name, parts in products.items()},
    )


def _cosines(inner: Tensor) -> Tensor:
    lengths = inner.diagonal().sqrt()
    scale = torch.outer(lengths, lengths)
    cosines = torch.where(scale > 0, inner / scale.clamp(min=1e-300), 0.0).clamp(-1, 1)
    return cosines.fill_diagonal_(1.0)


def _table(header: list[str], rows: Any) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(csv_cell, header))
    for name, values in rows:
        writer.writerow([csv_cell(name), *(repr(value) for value in values)])
    return buffer.getvalue()
