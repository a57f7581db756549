"""Who stands after each part of AutoAttack's versions, by the authors' own program.

`autoattack_versions.npz` holds, for each version and norm, one row of bits per seed and part. The
models and images are those of `attack_reference`; the program ran with fewer steps, queries and
targets than published, all else as its `set_version` has it. To record it again, with
github.com/fra31/auto-attack on the path:

    python tests/oracles/autoattack_versions.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from oracles.attack_reference import EPS, PEER_NORMS, load_images, load_model

DATA = Path(__file__).parent / "data" / "autoattack_versions.npz"
COUNT, STEPS, QUERIES, TARGETS = 20, 10, 40, 2
SEEDS = (0, 1, 2)
CASES = (("standard", "l1"), ("plus", "l1"), ("rand", "l1"))


def recorded(version: str, norm: str) -> dict[str, np.ndarray]:
    """By part, in order: who stands after it, one row per seed."""
    with np.load(DATA) as file:
        names = file[f"{version}/{norm}/parts"].tolist()
        bits = np.unpackbits(file[f"{version}/{norm}"], axis=2, count=COUNT).astype(bool)
    return {name: bits[:, place] for place, name in enumerate(names)}


def _run(version: str, norm: str, seed: int) -> dict[str, np.ndarray]:
    from autoattack import AutoAttack

    model, (images, labels) = load_model("robust"), load_images(COUNT)
    whole: Any = AutoAttack(
        model, norm=PEER_NORMS[norm], eps=EPS[norm], seed=seed, version=version, device="cpu",
        verbose=False,
    )  # fmt: skip
    for part in (whole.apgd, whole.apgd_targeted):
        # What its constructor makes of the number of steps.
        part.n_iter = part.n_iter_orig = STEPS
        part.n_iter_2, part.n_iter_min = int(0.22 * STEPS), max(int(0.06 * STEPS), 1)
        part.size_decr = max(int(0.03 * STEPS), 1)
    whole.fab.n_iter = STEPS
    whole.apgd_targeted.n_target_classes = whole.fab.n_target_classes = TARGETS
    whole.square.n_queries = QUERIES
    parts, standing = list(whole.attacks_to_run), {}
    with torch.no_grad():
        alive = model(images).argmax(1) == labels
    for part in parts:
        whole.attacks_to_run = [part]
        rows = alive.nonzero()[:, 0]
        worst = whole.run_standard_evaluation(images[rows], labels[rows], bs=COUNT)
        with torch.no_grad():
            alive[rows] = model(worst).argmax(1) == labels[rows]
        standing[part] = alive.numpy().copy()
    return standing


def record() -> None:
    """Run the authors' program and write the file."""
    torch.set_num_threads(1)
    content: dict[str, np.ndarray] = {}
    for version, norm in CASES:
        found = [_run(version, norm, seed) for seed in SEEDS]
        parts = list(found[0])
        content[f"{version}/{norm}/parts"] = np.array(parts)
        rows = np.array([[each[part] for part in parts] for each in found])
        print(version, norm, dict(zip(parts, rows.sum(2).T.tolist(), strict=True)), flush=True)
        content[f"{version}/{norm}"] = np.packbits(rows, axis=2)
    np.savez_compressed(DATA, **content)


if __name__ == "__main__":
    record()
