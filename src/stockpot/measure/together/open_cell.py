"""A cell with its data and its model loaded: from there to its result file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from stockpot.datasets.dataset import Dataset
from stockpot.engine import pick_device
from stockpot.errors import BadDataError
from stockpot.harden.trained_on import trained_on
from stockpot.measure.cells import Cell, by_position_told, model_for
from stockpot.measure.in_memory import Ran
from stockpot.measure.measurement import Context, Progress
from stockpot.measure.overlap import Overlap, with_unseen
from stockpot.measure.parts import Pieces
from stockpot.measure.saved import any_saved, is_doubted
from stockpot.measure.stream.taken import check_taken
from stockpot.measure.together.ahead import corrupt_ahead, decode_ahead
from stockpot.measure.together.pictures import Pictures
from stockpot.models.classifier import Classifier
from stockpot.models.fingerprint import identity_in_use
from stockpot.models.forward.memory import batch_of
from stockpot.results.index.open import tell
from stockpot.results.packed import pack_bits, pack_groups, pack_labels
from stockpot.results.provenance import provenance
from stockpot.results.samples_file import digest_of
from stockpot.results.schema import CellKey, CellResult, Cost, DataFacts, Flag, ModelFacts, Score
from stockpot.results.store import ResultStore
from stockpot.score.predictions import NON_FINITE
from stockpot.stages import stage


@dataclass(frozen=True)
class OpenCell:
    """A cell with all that it needs: its data and its model, loaded."""

    cell: Cell
    key: CellKey
    data: Dataset
    overlap: Overlap | None
    model: Classifier
    device: torch.device

    @property
    def store(self) -> ResultStore | None:
        """Where its result goes."""
        return ResultStore(self.cell.store) if self.cell.store else None

    def context(self, progress: Progress, pictures: Pictures) -> Context:
        """How to run it."""
        cell, size = self.cell, self.model.preprocess.size
        scratch = self.store.scratch(self.key) if self.store else None
        return Context(
            self.device,
            batch_of(
                cell.batch_size,
                self.device,
                size.height * size.width if cell.passes else None,
                len(self.data),
            ),
            cell.seed,
            progress,
            scratch,
            cell.forward,
            keeps=not isinstance(cell.model.source, Classifier),
            pictures=pictures,
            identity=identity_in_use(
                self.key.model_fingerprint, self.key.model_options, self.key.words
            ),
            sibling=cell.data.sibling,
            said={} if cell.samples and self.store else None,
            pieces=Pieces(scratch / "pieces" if scratch and not cell.samples else None, cell.part),
        )

    def finish(self, ran: Ran, cost: Cost) -> CellResult:
        """The result of what was found, saved."""
        result = self._result(ran, cost)
        if self.store:
            with stage("write"):
                said, source = ran.context.said, self.cell.data
                samples = None
                if said is not None:
                    from stockpot.measure.samples.table import cell_samples  # reads parquet

                    samples = cell_samples(result, self.data, said, source)
                    result = result.model_copy(update={"samples": digest_of(samples)})
                file = self.store.save(result, samples)
                self.store.clear_scratch(self.key)
                if self.cell.index:
                    tell(self.cell.index, file)
        return result

    def _result(self, ran: Ran, cost: Cost) -> CellResult:
        found, watch = ran.found, ran.watch
        cell, data, model, known_images = self.cell, self.data, self.model, self.overlap
        broken = [Flag(name=NON_FINITE, count=watch.broken, of=watch.seen)] if watch.broken else []
        positions, by_position = by_position_told(model, data) if found.class_space else ([], [])
        trained = trained_on(cell.model.source, cell.model.options.get("revision"))
        notes = [*found.notes, *_trained_note(trained, found.scores)]
        labels, label_names = pack_labels(data.labels.numpy(), data.classes)
        result = CellResult(
            key=self.key,
            scores=found.scores,
            data=DataFacts(
                name=data.name,
                split=data.split,
                n=len(data),
                classes=len(data.classes),
                fingerprint=data.fingerprint,
                licence=data.licence,
            ),
            model=ModelFacts(
                name=cell.model.name,
                source=model.origin.source,
                fingerprint=self.key.model_fingerprint,
                architecture=model.origin.architecture,
                parameters=model.parameter_count,
                preprocessing=str(model.preprocess),
                class_space=found.class_space,
                trained_on=trained,
            ),
            convention=found.convention,
            provenance=provenance(cost.device),
            cost=cost,
            forward=ran.context.made[0].facts if ran.context.made else None,
            outcomes={name: pack_bits(flags) for name, flags in found.outcomes.items()},
            outcome_sizes={
                name: len(flags)
                for name, flags in found.outcomes.items()
                if len(flags) != len(data)
            },
            notes=[
                *dict.fromkeys([*notes, *by_position, *ran.notes]),
                *([watch.note] if watch.broken else []),
            ],
            flags=[
                *found.flags,
                *broken,
                *positions,
                *(known_images.flags if known_images else []),
            ],
            seen=pack_bits(known_images.seen) if known_images and not cell.unseen else "",
            groups=pack_groups(data.groups),
            labels=labels,
            label_names=label_names,
            findings=list(found.findings),
            pictures=list(found.pictures),
        )
        return with_unseen(result, known_images) if known_images else result


def open_cell(
    cell: Cell, key: CellKey | None = None, *, begins: bool = True
) -> OpenCell | CellResult:
    """Load what a cell needs; one that is already saved is read, not repeated.

    Args:
        cell: what to measure.
        key: the cell's key, where it is known.
        begins: whether to begin with its pictures; not where somebody goes through them already.
    """
    with stage("load"):
        key = key or cell.key()
        known = any_saved(cell, key)
        if known and not is_doubted(cell, known):
            return known
        data, known_images = cell.images()
        if data.fingerprint != key.data_fingerprint:
            # Saved under the old content, it would be taken for an answer about it for ever.
            raise BadDataError(
                f"{cell.data.name}: the data has changed since the run began.",
                hint="Start it again: what is saved stays, and the rest is asked of what is there.",
            )
        device = pick_device(cell.device)
        if begins and device.type != "cpu":  # there, whoever loads the model needs the processor
            decode_ahead(cell, data)
            corrupt_ahead(cell, data, device)
        model = model_for(cell.model, data, device, key.model_fingerprint)
        if known and known.model.preprocessing == str(model.preprocess):
            return known
        check_taken(model, cell.measure)
    return OpenCell(cell, key, data, known_images, model, device)


def _trained_note(trained: Mapping[str, str], scores: Sequence[Score]) -> list[str]:
    """A warning where a model is measured under what it was trained on."""
    measured = {str(score.condition.get("corruption")) for score in scores}
    both = [f"{name} (by {why})" for name, why in trained.items() if name in measured]
    return [f"trained on corruptions that are measured here: {', '.join(both)}"] if both else []
