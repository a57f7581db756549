"""Two small CNNs, 200 CIFAR-10 test images, and what other people's attacks achieve on them.

`attacks.npz` holds the images, the weights (fp16) and, for each attack and seed, which of the first
100 images stayed correctly classified. To record it again, with both peers installed:

    pip install --no-deps torchattacks==3.5.1 pyautoattack==0.2.0
    python tests/oracles/attack_reference.py ROBUST.pt NOMINAL.pt

`robust` was trained on 20,000 CIFAR-10 images against one-step l_inf attacks of 8/255 from random
starts, `nominal` on 10,000 without; both are honest small models (61 % and 66 % clean accuracy).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

DATA = Path(__file__).parent / "data" / "attacks.npz"
RECORDED = 100
SEEDS = (0, 1, 2)
EPS = {"linf": 8 / 255, "l2": 0.5, "l1": 12.0}
PEER_NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1"}


def small_cnn(width: int = 16) -> nn.Sequential:
    """Four convolutions, 43,000 weights."""
    layers: list[nn.Module] = []
    channels = 3
    for out, stride in ((width, 1), (2 * width, 2), (2 * width, 1), (4 * width, 2)):
        layers += [nn.Conv2d(channels, out, 3, stride, 1), nn.BatchNorm2d(out), nn.ReLU()]
        channels = out
    return nn.Sequential(*layers, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64 * width, 10))


def load_model(name: str) -> nn.Sequential:
    """`robust` or `nominal`."""
    model = small_cnn()
    with np.load(DATA) as file:
        weights = {
            key: torch.from_numpy(file[f"{name}/{key}"]).to(value.dtype)
            for key, value in model.state_dict().items()
        }
    model.load_state_dict(weights)
    return model.eval()


def load_images(count: int = 200) -> tuple[Tensor, Tensor]:
    """Pixels in [0, 1] and labels."""
    with np.load(DATA) as file:
        images, labels = file["images"][:count], file["labels"][:count]
    return torch.from_numpy(images).float() / 255, torch.from_numpy(labels)


def recorded() -> dict[str, np.ndarray]:
    """By `peer/model/attack/norm`: robust masks, one row per seed."""
    with np.load(DATA) as file:
        return {
            key.removeprefix("peer/"): np.unpackbits(file[key], axis=1, count=RECORDED).astype(bool)
            for key in file.files
            if key.startswith("peer/")
        }


def _peers(model: nn.Module, norm: str, seed: int) -> dict[str, Any]:
    import torchattacks
    from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
    from pyautoattack.fab_pt import FABAttack_PT
    from pyautoattack.square import SquareAttack

    eps, name = EPS[norm], PEER_NORMS[norm]
    common = {"eps": eps, "norm": name, "seed": seed, "n_restarts": 1, "device": "cpu"}
    found = {
        "autoattack/apgd-ce": APGDAttack(model, n_iter=20, loss="ce", **common),
        "autoattack/apgd-dlr": APGDAttack(model, n_iter=20, loss="dlr", **common),
        "autoattack/apgd-t": APGDAttack_targeted(model, n_iter=20, n_target_classes=3, **common),
        "autoattack/fab-t": FABAttack_PT(
            model, n_iter=20, n_target_classes=3, targeted=True, **common
        ),
        "autoattack/square": SquareAttack(
            model, p_init=0.8, n_queries=300, resc_schedule=False, **common
        ),
    }
    found = {key: attack.perturb for key, attack in found.items()}
    if norm == "l1":
        several = APGDAttack(model, n_iter=20, loss="ce", use_largereps=True, **common)
        found["autoattack/apgd-multi"] = several.perturb
    else:
        options = {"norm": name, "eps": eps, "steps": 20, "seed": seed}
        found["torchattacks/apgd-ce"] = torchattacks.APGD(model, loss="ce", **options)
        found["torchattacks/apgd-dlr"] = torchattacks.APGD(model, loss="dlr", **options)
        found["torchattacks/fab-t"] = torchattacks.FAB(
            model, norm=name, eps=eps, steps=20, seed=seed, n_classes=4, multi_targeted=True
        )
    return found


def record(robust: str, nominal: str) -> None:
    """Run the peers and write `attacks.npz`."""
    import stockpot

    torch.set_num_threads(1)
    test = stockpot.load_dataset("cifar10", split="test", limit=200)
    content: dict[str, np.ndarray] = {
        "images": test.images.pixels.numpy(),
        "labels": test.labels.numpy(),
    }
    pixels, labels = test.images.pixels[:RECORDED].float() / 255, test.labels[:RECORDED]
    for name, path in (("robust", robust), ("nominal", nominal)):
        model = small_cnn()
        weights = torch.load(path, weights_only=True)
        weights = {k: v.half() if v.is_floating_point() else v for k, v in weights.items()}
        model.load_state_dict({k: v.float() for k, v in weights.items()})
        model.eval()
        content |= {f"{name}/{key}": value.numpy() for key, value in weights.items()}
        for norm in EPS if name == "robust" else ("linf",):
            rows: dict[str, list[np.ndarray]] = {}
            for seed in SEEDS:
                for attack, run in _peers(model, norm, seed).items():
                    if name == "nominal" and attack != "autoattack/apgd-ce":
                        continue
                    with torch.no_grad():
                        clean = model(pixels).argmax(1) == labels
                    worst = run(pixels.clone(), labels.clone())
                    with torch.no_grad():
                        standing = clean & (model(worst).argmax(1) == labels)
                    rows.setdefault(attack, []).append(standing.numpy())
            for attack, masks in rows.items():
                print(name, norm, attack, [int(mask.sum()) for mask in masks], flush=True)
                content[f"peer/{attack}/{name}/{norm}"] = np.packbits(np.stack(masks), axis=1)
    np.savez_compressed(DATA, **content)


if __name__ == "__main__":
    record(*sys.argv[1:3])
