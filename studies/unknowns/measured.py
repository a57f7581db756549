"""What the networks answer to the images of the second run, by the image (plan.md).

Images are those that the first run did not see. What is kept of each network: the score of every
detector for every image, and of the inside images whether the answer is right and how sure it is;
of the half that is judged also what one temperature changes and what the sets of answers hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from stockpot import load_dataset, load_model
from stockpot.datasets.dataset import Dataset, limited_rows
from stockpot.files import write_atomic
from stockpot.measure.measurement import Context
from stockpot.measure.unknown.answers import Answers, answers_of
from stockpot.measure.unknown.conformal_sets import Method, Regular, strangeness, threshold
from stockpot.measure.unknown.detectors import ALL, Settings, detector
from stockpot.measure.unknown.known_classes import foreign
from stockpot.measure.unknown.penultimate import Penultimate
from stockpot.measure.unknown.temperature import fitted_temperature, nll
from stockpot.results.contrast import halves

FRESH_SETS = {"mnist": "test", "fashion_mnist": "test", "quickdraw": "test", "icons": "train"}
"""Foreign sets of the second run, and the split whose images the first one did not see."""
SEEN = {"cifar10": 2000, "mnist": 1000, "fashion_mnist": 1000, "quickdraw": 1000}
"""How many test images the first run drew of each, by seed 0."""
FOREIGN, TRAINING, ALPHA = 2000, 5000, 0.1
SETS_BY: tuple[Method, ...] = ("lac", "aps")
Arrays = dict[str, NDArray[Any]]


def unseen(data: Dataset, seen: int) -> Dataset:
    """The images that a limit of so many does not take."""
    known = set(limited_rows(len(data), seen).tolist()) if seen else set()
    return data.take([row for row in range(len(data)) if row not in known])


def fresh_sets(known: tuple[str, ...]) -> dict[str, Dataset]:
    """The foreign images, by set."""
    found = {}
    for name, split in FRESH_SETS.items():
        data = unseen(load_dataset(name, split=split), SEEN.get(name, 0)).limited(FOREIGN, seed=1)
        found[name] = foreign(name, data, known, "leave_out")[0]
    return found


def judged_half(answers: Answers, seed: int = 0) -> Arrays:
    """Of the half that nothing was fitted on: temperature and sets, by the image."""
    fit, rest = (answers.take(rows.astype(np.int64)) for rows in halves(len(answers), seed))
    temperature = fitted_temperature(fit)
    kept: Arrays = {"nll": nll(rest), "nll_scaled": nll(rest, temperature)}
    chances = [np.random.default_rng([seed, n]).random(len(part)) for n, part in
               ((1, fit), (0, rest))]  # fmt: skip
    for method in SETS_BY:
        of_fit, of_rest = (
            strangeness(part.probabilities(), method, chance, Regular())
            for part, chance in zip((fit, rest), chances, strict=True)
        )
        # As in `conformal`: what is as strange as the threshold belongs to the set.
        right = np.take_along_axis(of_fit, fit.wanted[:, :1], axis=1)[:, 0]
        inside = of_rest <= threshold(right, ALPHA) + 1e-9
        kept[f"covered_{method}"] = np.take_along_axis(inside, rest.wanted[:, :1], axis=1)[:, 0]
        kept[f"size_{method}"] = inside.sum(axis=1)
    return kept


def answers_by_image(
    name: str, inside: Dataset, outside: Mapping[str, Dataset], training: Dataset
) -> Arrays:
    """Everything that is kept of one network."""
    model, context = load_model(name), Context()
    looking = Penultimate(model, inside, context)
    with torch.inference_mode():
        features = torch.cat(
            [cast(torch.Tensor, seen.features) for seen in looking.batches(training, "training")]
        )
        detectors = {
            each: detector(each, Settings(50, None, 90.0), looking.head, features)[0]
            for each in ALL
        }
        kept: Arrays = {}
        for place, data in {"inside": inside, **outside}.items():
            found: dict[str, list[torch.Tensor]] = {each: [] for each in ALL}
            for seen in looking.batches(data, place):
                for each, score in detectors.items():
                    found[each].append(score(seen.logits, seen.features).double())
            kept |= {f"{place}/{each}": torch.cat(parts).numpy() for each, parts in found.items()}
    answers = answers_of(model, inside, context, "inside")
    kept |= {"correct": answers.correct, "confidence": answers.confidence()}
    return kept | judged_half(answers)


def measure_fresh(out: Path, networks: Mapping[str, str]) -> None:
    """Ask every network; one that has answered is not asked again."""
    inside = unseen(load_dataset("cifar10", split="test"), SEEN["cifar10"])
    outside = fresh_sets(inside.classes)
    training = load_dataset("cifar10", split="train", limit=TRAINING)
    for label, name in networks.items():
        place = out / f"{label}.npz"
        if place.is_file():
            continue
        kept = answers_by_image(name, inside, outside, training)
        out.mkdir(parents=True, exist_ok=True)
        partial = out / f".{label}.npz"
        np.savez_compressed(partial, **cast(Any, kept))
        partial.replace(place)
    facts = [f"{key}: {data} {len(data)} {data.fingerprint}" for key, data in
             {"inside": inside, **outside, "training": training}.items()]  # fmt: skip
    write_atomic(out / "images.txt", "\n".join(facts) + "\n")
