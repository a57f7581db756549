"""Making a run's models part of the zoo: half-precision weights, then cards with the evidence.

    python -m stockpot.zoo.embed weights runs/zoo_icons
    stockpot measure icons-resnet ... --data icons --with clean,cost -o runs/zoo_cards
    python -m stockpot.zoo.embed cards runs/zoo_cards

A card's numbers are those of the embedded weights, read from result files, never typed.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from stockpot.errors import UserError
from stockpot.results.headline import format_score
from stockpot.results.schema import CellResult
from stockpot.results.store import load_results

_COPIED = ("config.json", "preprocessor_config.json", "training.json")


def embed_weights(run: Path, zoo: Path) -> list[Path]:
    """Copy every measured model of a run into the zoo, in half precision."""
    made = []
    for name in sorted({result.key.model for result in load_results(run)}):
        source = run / "models" / name
        if not source.is_dir():
            raise UserError(f"{run} holds results of {name} but no model of that name.")
        target = zoo / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for file in _COPIED:
            shutil.copy(source / file, target / file)
        weights = load_file(source / "model.safetensors")
        # Half precision halves the package; loading brings the weights back to float32.
        halved = {key: t.half() if t.dtype == torch.float32 else t for key, t in weights.items()}
        save_file(halved, target / "model.safetensors", metadata={"format": "pt"})
        made.append(target)
    return made


def write_cards(run: Path, zoo: Path) -> list[Path]:
    """Write the card of every embedded model that a run has measured."""
    results = load_results(run)
    made = []
    for name in sorted({result.key.model for result in results}):
        target = zoo / name / "README.md"
        training = json.loads((zoo / name / "training.json").read_text(encoding="utf-8"))
        cells = [result for result in results if result.key.model == name]
        target.write_text(card(name, training, cells), encoding="utf-8")
        made.append(target)
    return made


def card(name: str, training: dict[str, Any], cells: list[CellResult]) -> str:
    """The model card: what it is, how it was made, how well it does."""
    clean = next(cell for cell in cells if cell.key.measure == "clean")
    accuracy = clean.score("accuracy")
    parameters = {k: v for k, v in training["parameters"].items() if v not in (None, 0, 0.0, [])}
    made = training["provenance"]
    lines = [
        "---",
        "library_name: transformers",
        "license: apache-2.0",
        "pipeline_tag: image-classification",
        "tags: [stockpot]",
        "---",
        f"# {name}",
        "",
        f"{clean.model.architecture}, {clean.model.parameters / 1e6:.2f} M parameters, "
        f"{format_score(accuracy)} on {clean.data.n:,} test icons of {clean.data.classes} classes.",
        "",
        "A small model that comes with Stockpot so that everything runs without a download.",
        "",
        "## How it was made",
        "",
        f"- Data: `{training['data']['name']}`, split `{training['data']['split']}`, "
        f"{training['data']['n']:,} images, fingerprint `{training['data']['fingerprint'][:16]}`.",
        f"- Method: `{training['method']}` with "
        + ", ".join(f"`{key}={value}`" for key, value in parameters.items() if key != "method")
        + ".",
        "- Recipe: `recipes/zoo_icons.yaml`.",
        f"- Time: {training['seconds']:.0f} s on {made['device']} (torch {made['torch']}), "
        f"{made['created'][:10]}.",
        "",
        "## How well it does",
        "",
        f"On `{clean.data.name}`, split `{clean.data.split}`, n = {clean.data.n:,}, seed "
        f"{clean.key.seed}, 95 % intervals, {clean.convention}:",
        "",
        "| measure | value |",
        "|---|---|",
        *(
            f"| {score.metric.replace('_', ' ')} | {format_score(score)} |"
            for score in clean.scores
            if "class" not in score.condition
        ),
        "",
        f"Preprocessing: {clean.model.preprocessing}.",
        "",
        "## Licence",
        "",
        "Weights: Apache-2.0. The icons it learned from: see `ICONS_ATTRIBUTION.md`.",
        "",
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Embed the weights of a run, or write cards from a run that measured them."""
    steps = {"weights": embed_weights, "cards": write_cards}
    if len(arguments) != 2 or arguments[0] not in steps:
        raise SystemExit("usage: python -m stockpot.zoo.embed weights|cards RUN_FOLDER")
    zoo = Path(__file__).parent / "models"
    for path in steps[arguments[0]](Path(arguments[1]), zoo):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
