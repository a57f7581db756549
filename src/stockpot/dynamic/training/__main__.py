"""Train the small VQGAN of the zoo, or a Gaussian autoencoder like it.

    python -m stockpot.dynamic.training runs/small-vqgan --device cuda --precision bf16

It learns from the train splits of the icons (at 64 and 32 px), CIFAR-10, MNIST, Fashion-MNIST and
Quick, Draw! (32 px), and writes a diffusers folder with a card, its figures and pictures. With
`--codes 0` it has a Gaussian latent instead of a codebook, for the generator `kl`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path

import torch
from torch import Tensor

from stockpot.datasets.load import load_dataset
from stockpot.dynamic.training.corpus import Corpus, Source, gather
from stockpot.dynamic.training.fit import Plan, fit
from stockpot.dynamic.training.losses import FeatureDistance
from stockpot.dynamic.training.quality import quality, strip
from stockpot.engine import device_name, pick_device
from stockpot.files import write_atomic
from stockpot.models.autoencoder.coders import Architecture
from stockpot.models.autoencoder.files import save_autoencoder
from stockpot.models.autoencoder.model import Autoencoder
from stockpot.models.load import load_model
from stockpot.results.provenance import provenance

# Dataset, side, share among the pictures of that side.
SOURCES = (
    ("icons", 64, 1.0),
    ("cifar10", 32, 0.5),
    ("icons", 32, 0.15),
    ("fashion_mnist", 32, 0.15),
    ("mnist", 32, 0.1),
    ("quickdraw", 32, 0.1),
)
PERCEPTION = "icons-resnet"


def main(arguments: list[str]) -> None:
    """Train, score, and write the folder."""
    options = _parse(arguments)
    device = pick_device(options.device)
    plan = Plan(**{field.name: getattr(options, field.name) for field in fields(Plan)})
    out = Path(options.out)
    pictures = [
        Source(name, _pixels(name, "train", side, options.limit), share)
        for name, side, share in SOURCES
    ]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.seed)
        model = Autoencoder(Architecture(codes=options.codes)).to(device)
    distance = FeatureDistance(load_model(PERCEPTION).to(device))

    def said(step: int, seen: dict[str, float]) -> None:
        numbers = ", ".join(f"{key} {value:.4f}" for key, value in seen.items())
        print(f"step {step}: {numbers}", flush=True)  # noqa: T201
        save_autoencoder(model, out, half=True)  # a run that is killed leaves its last state

    torch.backends.cudnn.benchmark = True
    seen = fit(model, Corpus(pictures, device), distance, plan, said=said)
    save_autoencoder(model, out, half=True)
    _describe(model, out, plan, seen, pictures, device, options.limit)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m stockpot.dynamic.training", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("out", help="the folder to write")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=int, help="at most this many pictures of each dataset")
    parser.add_argument("--codes", type=int, default=Architecture().codes, help="0: no codebook")
    for field in fields(Plan):
        kind = type(field.default)
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    return parser.parse_args(arguments)


def _pixels(name: str, split: str, side: int, limit: int | None) -> Tensor:
    return gather(load_dataset(name, split=split, limit=limit), side)


def _describe(
    model: Autoencoder,
    out: Path,
    plan: Plan,
    seen: dict[str, float],
    sources: list[Source],
    device: torch.device,
    limit: int | None,
) -> None:
    found: dict[str, dict[str, float]] = {}
    shown: dict[int, list[Tensor]] = {}
    for name, side, _ in SOURCES:
        pixels = _pixels(name, "test", side, min(limit or 2000, 2000))
        found[f"{name}, {side} px"] = quality(model, pixels)._asdict()
        shown.setdefault(side, []).append(pixels[:: max(1, len(pixels) // 4)][:4])
    for side, parts in shown.items():
        picked = torch.cat(parts)[:24]
        write_atomic(out / f"reconstructions-{side}.png", strip(model, picked))
    facts = {
        "architecture": model.shape.to_dict(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "plan": asdict(plan),
        "seen": seen,
        "data": {f"{s.name}, {s.pixels.shape[-1]} px": len(s.pixels) for s in sources},
        "perception": PERCEPTION,
        "quality": found,
        "provenance": provenance(device_name(device)).model_dump(),
        "made": time.strftime("%Y-%m-%d"),
    }
    write_atomic(out / "training.json", json.dumps(facts, indent=1) + "\n")
    write_atomic(out / "README.md", card(out.name, facts))


def card(name: str, facts: dict[str, object]) -> str:
    """The card of an autoencoder, from its training record."""
    shape, quality_rows, plan, seen, made = (
        dict(facts[key])  # type: ignore[call-overload]
        for key in ("architecture", "quality", "plan", "seen", "provenance")
    )
    data = dict(facts["data"])  # type: ignore[call-overload]
    stride = 2 ** (len(shape["multipliers"]) - 1)
    if shape["codes"]:
        kind, gaussian = "A vector-quantised autoencoder", ""
        cells = f"{shape['codes']} codes of {shape['code_size']} numbers, one"
        use = ("It is the default generator of `stockpot measure --with dynamic`. The folder is a "
               "diffusers `VQModel`.")  # fmt: skip
    else:
        kind, gaussian = "An autoencoder with a Gaussian latent", " --codes 0"
        cells = f"{shape['code_size']} numbers"
        use = ("For the generator `kl` of `stockpot measure --with dynamic`. The folder is a "
               "diffusers `AutoencoderKL`.")  # fmt: skip
    rows = [
        f"| {key} | {row['n']:,} | {row['l1']:.4f} | {row['psnr']:.1f} | {row['codes']} |"
        for key, row in quality_rows.items()
    ]
    return "\n".join(
        [
            f"# {name}",
            "",
            f"{kind}, {int(str(facts['parameters'])) / 1e6:.2f} M parameters, {cells} for every "
            f"{stride} x {stride} pixels; for 28, 32 and 64 px pictures.",
            "",
            use,
            "",
            "## How it was made",
            "",
            "- Data (train splits): " + ", ".join(f"{k}: {v:,}" for k, v in data.items()) + ".",
            f"- Command: `python -m stockpot.dynamic.training OUT{gaussian} "
            f"--minutes {plan['minutes']:g} --batch {plan['batch']} "
            f"--precision {plan['precision']} --seed {plan['seed']}`; "
            f"{seen['steps']:,.0f} steps in {seen['seconds']:.0f} s on {made['device']}.",
            f"- Losses: absolute error, distance in the features of `{facts['perception']}`, "
            f"{'commitment' if shape['codes'] else 'divergence'}, and a patch critic from "
            f"{100 * plan['fooling_from']:.0f} % of the training on.",
            "",
            "## How well it gives pictures back (test splits)",
            "",
            "| pictures | n | mean absolute error | PSNR (dB) | codes used |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "![32 px: pictures above, reconstructions below](reconstructions-32.png)",
            "![64 px: pictures above, reconstructions below](reconstructions-64.png)",
            "",
            "## Licence",
            "",
            "Weights: Apache-2.0. The pictures it learned from: see the datasets' own licences.",
            "",
        ]
    )


if __name__ == "__main__":
    main(sys.argv[1:])
