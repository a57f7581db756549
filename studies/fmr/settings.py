"""What the FMR study compares: networks, generators, searches and oracles."""

from __future__ import annotations

from typing import Any

NETS = {
    "mnist": ("lenet", "lenet-pgd", "lenet-augmix", "lenet-affine", "lenet-l2", "mnist-resnet"),
    "cifar10": (
        "cifar-vanilla",
        "cifar-pgd",
        "cifar-grey",
        "cifar-augmented",
        "cifar-augmix",
        "cifar10-linf",
        "cifar10-l2",
    ),
    "icons": (
        "icons-resnet",
        "icons-linf",
        "icons-vit",
        "icons-nominal",
        "icons-l2",
        "icons-vit-colour",
    ),
}
# The same training with other seeds.
AGAIN = {"mnist": ("lenet", "lenet-2", "lenet-3"), "cifar10": ("cifar-vanilla", "cifar-vanilla-2")}
# Other oracles than the zoo's expert for the data: a generalist, and a classifier that is not among
# the models under test, or is left out of them where it judges.
GENERALIST = "clip-base"
CLASSIFIERS = {"mnist": "mnist-resnet", "cifar10": "cifar10-nominal", "icons": "icons-convnext"}
# A plain network of the zoo on which masks are found with other penalties than the published 36.36.
OF_THE_ZOO = {"cifar10": "cifar10-nominal", "icons": "icons-resnet"}
PENALTIES = (12.0, 8.0, 4.0)
# The parts with masks, and which latents move in each.
MASKS = {
    "sparse-no": "all",
    "sparse-settled": "settled",
    "sparse-paper": "paper",
    "penalty-none": "all",
    **{f"penalty-{value:g}": f"settled, penalty {value:g}" for value in PENALTIES},
}
GENERATORS = ("vqgan", "style", "warp", "colour", "frequency", "mixture")
STEPS = "0.001,0.003,0.01,0.03,0.1"
BUDGETS = "5,10,20,100"
SEARCHES: dict[str, dict[str, Any]] = {
    "as published": {},
    "sign": {"optimiser": "sign"},
    "normalised": {"optimiser": "normalised"},
    "reencode": {"reading": "reencode"},
    "best_loss": {"keep": "best_loss"},
    "backtrack": {"backtrack": 3},
    "best_loss, backtrack": {"keep": "best_loss", "backtrack": 3},
    "3 restarts": {"restarts": 3, "keep": "best_loss"},
    "fgsm start": {"fgsm": 0.003},
    "top-5 oracle": {"rule": "top-5"},
    "margin oracle": {"rule": "margin:0.2"},
}
CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "pixelate", "jpeg_compression")
