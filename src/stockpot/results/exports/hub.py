"""What a Hugging Face model repository holds about results: `.eval_results` and the model card.

The card carries the headline scores twice: as a `model-index` in its front matter, which the hub
shows beside the model, and as tables for people.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import yaml

from stockpot.results.exports.names import by_model, file_names, flat_name
from stockpot.results.exports.papers import markdown
from stockpot.results.headline import headline_columns, headline_rows, split_by_data
from stockpot.results.provenance import package_version
from stockpot.results.schema import CellResult, Score
from stockpot.results.tables import escaped_markdown


def eval_results(results: Sequence[CellResult]) -> dict[str, str]:
    """A YAML file for each model and dataset, with every score that is not of a single class."""
    models = by_model(results)
    named = file_names(models)
    return {
        f"{named[model]}/{name}": text
        for model, cells in models.items()
        for name, text in eval_files(cells).items()
    }


def eval_files(cells: Sequence[CellResult]) -> dict[str, str]:
    """The same for one model, by their place in its repository."""
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    entries = defaultdict(list)
    for cell in cells:
        for score in (s for s in cell.scores if "class" not in s.condition):
            said = f"n={score.n}, seed={cell.key.seed}{_interval(score)}, {cell.convention}"
            entries[cell.key.data].append(
                EvalResultEntry(
                    dataset_id=cell.data.name,
                    task_id=f"{cell.key.measure}/{flat_name(score)}",
                    value=score.value,
                    date=cell.provenance.created,
                    notes=said,
                )
            )
    named = file_names(entries)
    return {
        f".eval_results/{named[data]}.yaml": yaml.safe_dump(
            eval_result_entries_to_yaml(rows), sort_keys=False
        )
        for data, rows in entries.items()
    }


def model_cards(results: Sequence[CellResult]) -> dict[str, str]:
    """A README.md for each model."""
    models = by_model(results)
    named = file_names(models)
    return {f"{named[model]}/README.md": model_card(cells) for model, cells in models.items()}


def model_card(cells: Sequence[CellResult]) -> str:
    """The card of one model: front matter for the hub, then the scores for people."""
    from huggingface_hub import ModelCardData

    name = cells[0].key.model
    matter = ModelCardData(
        model_name=name,
        eval_results=hub_results(cells),
        tags=["image-classification", "robustness", "stockpot"],
        pipeline_tag="image-classification",
    )
    return f"---\n{matter.to_yaml()}\n---\n\n# {escaped_markdown(name)}\n\n{scores_text(cells)}"


SCORES = "## Robustness scores"
"""The heading of the part of a card that is ours; a push replaces it and leaves the rest."""


def scores_text(cells: Sequence[CellResult]) -> str:
    """The part of a card that tells the scores."""
    facts = cells[0].model
    what = f"{facts.architecture}, {facts.parameters:,} parameters. " if facts.architecture else ""
    return (
        f"{SCORES}\n\n{what}Measured with Stockpot {package_version('stockpot')}; numbers are in "
        f"percent where no unit stands, with 95 % intervals.\n\n{markdown(cells)}"
    )


def hub_results(cells: Sequence[CellResult]) -> list[Any]:
    """The headline scores as the hub's client has them."""
    from huggingface_hub import EvalResult

    found: list[Any] = []
    for own in split_by_data(cells).values():
        columns = headline_columns(own)
        for row in headline_rows(own, columns).values():
            for column, shown in zip(columns, row, strict=True):
                if shown.score is None:
                    continue
                facts = next(c.data for c in own if c.key.measure == column.measure)
                found.append(
                    EvalResult(
                        task_type="image-classification",
                        dataset_type=facts.name,
                        dataset_name=facts.name,
                        dataset_split=facts.split,
                        dataset_revision=None,
                        metric_type=column.metric,
                        metric_name=f"{column.measure}: {column.title}",
                        metric_value=round(shown.score.value, 6),
                    )
                )
    return found


def _interval(score: Score) -> str:
    if score.ci_low is None or score.ci_high is None:
        return ""
    return f", {score.ci_method} [{score.ci_low:.4f}, {score.ci_high:.4f}]"
