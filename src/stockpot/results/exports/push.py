"""Results into a model's repository on the hub: `.eval_results`, and the part of its card.

What others wrote in the card stays: the part under our heading is replaced, and of the results in
its front matter those of the same data and metric.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stockpot.errors import UserError
from stockpot.results.exports.hub import SCORES, eval_files, hub_results, model_card, scores_text
from stockpot.results.exports.names import by_model
from stockpot.results.schema import CellResult


def push(
    results: Sequence[CellResult], repo: str, *, model: str = "", pull_request: bool = False
) -> str:
    """Commit the results of one model to its repository; returns the address of the commit.

    Args:
        results: of the model, or of several.
        repo: `owner/name`; it must exist.
        model: which of several models.
        pull_request: open one rather than write to the main branch.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, get_token
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    cells = _of_one(results, model)
    token = get_token()
    if token is None:
        raise UserError(
            "there is no token of the hub to push with.",
            hint="Run `hf auth login`, or set HF_TOKEN.",
        )
    api = HfApi(token=token)
    try:
        files = eval_files(cells) | {"README.md": _card(api, repo, cells)}
        done = api.create_commit(
            repo,
            [CommitOperationAdd(name, text.encode()) for name, text in files.items()],
            commit_message=f"Scores of {cells[0].key.model}",
            commit_description="Measured with Stockpot.",
            create_pr=pull_request,
        )
    except RepositoryNotFoundError as problem:
        raise UserError(
            f"the hub has no repository {repo} that this token may see.",
            hint=f"Make it first: `hf repo create {repo}`.",
        ) from problem
    except (HfHubHTTPError, HFValidationError, OSError) as problem:
        said = str(problem).strip().splitlines()[-1]
        raise UserError(f"{repo}: the hub did not take the results: {said}") from problem
    return str(done.pr_url if pull_request else done.commit_url)


def _of_one(results: Sequence[CellResult], model: str) -> list[CellResult]:
    models = by_model(results)
    if model and model not in models:
        raise UserError(f"there are no results of {model!r}: {', '.join(sorted(models))}.")
    if not model and len(models) > 1:
        raise UserError(
            f"a repository is of one model, and these results are of {', '.join(sorted(models))}.",
            hint="Choose with --model NAME.",
        )
    return models[model or next(iter(models))]


def _card(api: Any, repo: str, cells: Sequence[CellResult]) -> str:
    """The card of the repository with our part in it; a new one where it has none."""
    from huggingface_hub import ModelCard
    from huggingface_hub.errors import RemoteEntryNotFoundError

    try:
        known = Path(api.hf_hub_download(repo, "README.md")).read_text(encoding="utf-8")
    except RemoteEntryNotFoundError:  # and not where it only could not be asked
        return model_card(cells)
    card = ModelCard(known, ignore_metadata_errors=True)
    ours = hub_results(cells)
    same = {(one.dataset_name, one.dataset_split, one.metric_name) for one in ours}
    others = [
        one
        for one in card.data.eval_results or []
        if (one.dataset_name, one.dataset_split, one.metric_name) not in same
    ]
    card.data.eval_results = [*others, *ours]
    card.data.model_name = card.data.model_name or cells[0].key.model
    card.text = with_part(card.text, scores_text(cells))
    return str(card)


def with_part(text: str, part: str) -> str:
    """The text with our part in the place of an earlier one, or at its end."""
    earlier = re.compile(rf"^{re.escape(SCORES)}\n.*?(?=^#{{1,2}} |\Z)", re.MULTILINE | re.DOTALL)
    if earlier.search(text):
        return earlier.sub(lambda _: f"{part}\n", text, count=1)
    return f"{text.rstrip()}\n\n{part}"
