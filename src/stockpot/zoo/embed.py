"""Making a run's models part of the zoo: half-precision weights, then cards with the evidence.

    python -m stockpot.zoo.embed weights runs/zoo_icons recipes/zoo_icons.yaml icons-resnet ...
    stockpot measure icons-resnet ... --data icons --with clean,cost -o runs/zoo_cards
    python -m stockpot.zoo.embed cards runs/zoo_cards

A card's numbers are those of the embedded weights, read from result files, never typed.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from stockpot.checkpoints.record import RECORD, Record, read_record, write_record
from stockpot.errors import UserError
from stockpot.results.store import load_results
from stockpot.zoo.card import card

_WEIGHTS = "model.safetensors"


def embed_weights(run: Path, recipe: str, names: list[str], zoo: Path) -> list[Path]:
    """Copy models of a run into the zoo, in half precision, with the recipe that made them."""
    made = []
    for name in names:
        source = run / "models" / name
        if not (source / _WEIGHTS).is_file():
            raise UserError(f"{run} holds no model named {name}.")
        target = zoo / name
        shutil.rmtree(target, ignore_errors=True)
        # A card written by the run speaks of the run's weights, not of these.
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(_WEIGHTS, "README.md"))
        made_by = _record(source)
        details = {**made_by.details, "recipe": recipe}
        write_record(target, made_by.model_copy(update={"details": details}))
        _name_dual_encoder(target / "config.json")
        weights = load_file(source / _WEIGHTS)
        # Half precision halves the package; loading brings the weights back to float32.
        halved = {key: t.half() if t.dtype == torch.float32 else t for key, t in weights.items()}
        save_file(halved, target / _WEIGHTS, metadata={"format": "pt"})
        made.append(target)
    return made


def _record(folder: Path) -> Record:
    found = read_record(folder)
    if found is None:
        raise UserError(f"{folder} does not say how it was made: expected {RECORD}.")
    return found


def _name_dual_encoder(path: Path) -> None:
    """A vision tower says where its dual encoder is: here a name of the zoo, not a folder."""
    config = json.loads(path.read_text(encoding="utf-8"))
    if "dual_encoder" in config:
        config["dual_encoder"] = Path(config["dual_encoder"]).name
        path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def write_cards(run: Path, zoo: Path) -> list[Path]:
    """Write the card of every embedded model that a run has measured."""
    results = load_results(run)
    made = []
    for name in sorted({result.key.model for result in results}):
        target = zoo / name / "README.md"
        cells = [result for result in results if result.key.model == name]
        target.write_text(card(name, _record(zoo / name), cells), encoding="utf-8")
        made.append(target)
    return made


def main(arguments: list[str]) -> None:
    """Embed the weights of a run, or write cards from a run that measured them."""
    zoo = Path(__file__).parent / "models"
    match arguments:
        case ["weights", run, recipe, name, *others]:
            made = embed_weights(Path(run), recipe, [name, *others], zoo)
        case ["cards", run]:
            made = write_cards(Path(run), zoo)
        case _:
            raise SystemExit(
                "usage: python -m stockpot.zoo.embed weights RUN RECIPE NAME... | cards RUN"
            )
    for path in made:
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
