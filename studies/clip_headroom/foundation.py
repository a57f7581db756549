"""The base of the pool: a CLIP that learns to see from pictures, and words from other pictures.

Every training picture meets the same picture as a published network sees it (image-image contrast),
so that what is to be seen is learned without labels. Words come from icons, described by what they
show, from sketches of classes that are no task, and from a few named pictures of each task.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from tasks import TEMPLATES, Pictures, Task, pictures, pixels_of
from torch import Generator, Tensor, nn

from stockpot.datasets.captions.phrases import SKETCHES
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.harden.augment import affine, colour, crop, flip
from stockpot.harden.contrastive import contrastive_loss, dual_encoder, match
from stockpot.harden.optimise import make_optimiser, set_rate
from stockpot.models.classifier import Classifier
from stockpot.models.load import load_for, load_model
from stockpot.models.new import new_model

SIDE = 64
FLIPPED = ("cifar10", "icons", "others")
"""Pictures that mean the same in a mirror."""
SHARES = {"cifar10": 0.5, "mnist": 0.1, "fashion_mnist": 0.14, "quickdraw": 0.04, "icons": 0.06,
          "letters": 0.08, "xrays": 0.04, "others": 0.04}  # fmt: skip
"""How often a picture without words is of which set."""


@dataclass(frozen=True)
class Settings:
    """How large the base is, and how long it learns."""

    width: int = 384
    layers: int = 8
    text_width: int = 256
    text_layers: int = 3
    projection: int = 256
    steps: int = 1700
    batch: int = 1024
    spoken: tuple[int, int, int] = (112, 176, 96)
    """Of a batch: icons, sketches of other classes, and named pictures of the tasks."""
    few: int = 4
    """Named pictures of each class."""
    lr: float = 1e-3
    decay: float = 0.1
    words: float = 0.5
    """What the loss of captions counts for beside that of pictures."""
    sharpest: float = 30.0
    """The largest factor of cosines of pictures and captions."""
    softened: float = 8.0
    """The factor of cosines that is written: experts then part classes by wider angles."""
    teacher_side: int = 192
    others: int | None = None
    """Sketches of other classes; all, where nothing is said."""


class Sources(NamedTuple):
    """All training pictures on the device, where each comes from, and what is said of some."""

    pixels: Tensor
    """uint8, of one size."""
    names: tuple[str, ...]
    origin: Tensor
    subject: Tensor
    """The number of the captions of a picture; -1 where nothing is said."""
    captions: Dataset
    """A class for each subject; no pictures that matter."""
    groups: tuple[Tensor, ...]
    """Rows of icons, of sketches of other classes, and of named pictures of the tasks."""
    counts: Tensor
    """Pictures of each origin; on the CPU, where rows are drawn."""


def gather(
    folder: Path, tasks: Mapping[str, Task], settings: Settings, seed: int, device: torch.device
) -> Sources:
    """Bring all that the base sees to one size; which pictures are named depends on the seed."""
    of, classes = pictures(folder / "others.npz")
    images, labels = of["fit"]
    concepts = json.loads((folder / "concepts.json").read_text())
    sets: dict[str, Pictures] = {
        name: (pixels_of(task.fit), task.fit.labels) for name, task in tasks.items()
    } | {"others": (images[: settings.others], labels[: settings.others])}
    said: dict[str, tuple[str, ...]] = {}
    pixels, origin, subjects = [], [], []
    groups: list[list[int]] = [[], [], []]
    draw, start = torch.Generator().manual_seed(seed), 0
    for number, (name, (images, labels)) in enumerate(sets.items()):
        told = [""] * len(labels)
        if name == "others":
            told = [f"sketch: {classes[label]}" for label in labels.tolist()]
            said |= {f"sketch: {c}": tuple(t.format(c) for t in SKETCHES) for c in classes}
            groups[1] = list(range(start, start + len(labels)))
        else:
            if name == "icons":
                told = [f"icon: {shown}" for shown in concepts["shown"]][: len(labels)]
                said |= {f"icon: {key}": tuple(v) for key, v in concepts["captions"].items()}
                groups[0] = list(range(start, start + len(labels)))
            words = tasks[name].fit.classes
            for label, word in enumerate(words):
                rows = (labels == label).nonzero()[:, 0]
                few = rows[torch.randperm(len(rows), generator=draw)[: settings.few]].tolist()
                for row in few:
                    told[row] = f"{name}: {word}"
                groups[2] += [start + row for row in few]
                said[f"{name}: {word}"] = tuple(t.format(word) for t in TEMPLATES[name])
        pixels.append(resized(images, device))
        origin += [number] * len(labels)
        subjects += told
        start += len(labels)
    place = {name: index for index, name in enumerate(said)}
    subject = torch.tensor([place.get(name, -1) for name in subjects], device=device)
    blank = TensorImages(torch.zeros(len(said), 3, 1, 1, dtype=torch.uint8))
    captions = Dataset(
        name="captions", split="train", images=blank, labels=torch.arange(len(said)),
        classes=tuple(said), fingerprint="captions", prompts=tuple(said.values()),
    )  # fmt: skip
    return Sources(
        torch.cat(pixels), tuple(sets), torch.tensor(origin, device=device), subject, captions,
        tuple(torch.tensor(sorted(set(rows)), device=device) for rows in groups),
        torch.bincount(torch.tensor(origin), minlength=len(sets)),
    )  # fmt: skip


def resized(pixels: Tensor, device: torch.device, side: int = SIDE) -> Tensor:
    """Pictures of one side, uint8 on the device."""
    parts = []
    for chunk in torch.split(pixels, 4096):
        there = chunk.to(device).float()
        larger = F.interpolate(there, size=(side, side), mode="bicubic", antialias=True)
        parts.append(larger.clamp(0, 255).round().to(torch.uint8))
    return torch.cat(parts)


@torch.no_grad()
def seen_by(teacher: str, weights: Path, sources: Sources, side: int, width: int) -> Tensor:
    """What a published network makes of every picture: its features, whitened, of length one."""
    device = sources.pixels.device
    arguments = {"model_name": "efficientnet-lite0"}
    network = load_model(teacher, weights=weights, arguments=arguments).network.to(device).eval()
    found = []
    for chunk in torch.split(sources.pixels, 512):
        larger = F.interpolate(chunk.float(), size=(side, side), mode="bilinear")
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            maps = network.extract_features((larger - 127) / 128)  # type: ignore[operator]
        found.append(maps.float().mean(dim=(2, 3)))
    features = torch.cat(found)
    centred = features - features.mean(dim=0)
    values, vectors = torch.linalg.eigh(centred.T.double() @ centred.double() / len(centred))
    kept = vectors[:, -width:] / values[-width:].clamp(min=1e-8).sqrt()
    return F.normalize(centred @ kept.float(), dim=1)


def learn(
    sources: Sources, taught: Tensor, settings: Settings, seed: int, work: Path, out: Path
) -> dict[str, Any]:
    """Train a base and write it as a folder; what was seen on the way."""
    device, began = sources.pixels.device, time.perf_counter()
    model = new_base(sources, settings, seed, work).to(device)
    network = dual_encoder(model)
    network.train_both_towers()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        across = nn.Linear(settings.projection, taught.shape[1], bias=False)
        across.weight.copy_(torch.randn(across.weight.shape, generator=generator(seed, -1)) / 16)
    across.to(device)
    sharpness = nn.Parameter(torch.tensor(math.log(10.0), device=device))
    learned = [*model.parameters(), *across.parameters(), sharpness]
    optimiser = make_optimiser(learned, "adamw", settings.lr, settings.decay, 0.9)
    model.train()
    flipped = torch.tensor([name in FLIPPED for name in sources.names], device=device)
    trace, steps = [], settings.steps
    for step in range(steps):
        set_rate(optimiser, settings.lr, "cosine", step, steps, steps // 20, [], 0.1)
        draw = generator(seed, step)
        rows = chosen(sources, settings, draw)
        pixels = sources.pixels[rows].float() / 255
        mirrored = flip(pixels, draw)
        pixels = torch.where(flipped[sources.origin[rows]][:, None, None, None], mirrored, pixels)
        pixels = colour(crop(affine(pixels, draw), draw), draw)
        words = sum(settings.spoken)
        subject = sources.subject[rows[:words]]
        drawn = network.captions.draw(subject, draw)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            images = model.features(pixels)
            texts = network.text_features(drawn.tokens, drawn.mask)
            student = F.normalize(across(images), dim=1)
        by_sight = contrastive_loss(student, taught[rows], sharpness.exp(), match(rows))
        same = match(subject) | match(drawn.identity)
        scale = network.scale().clamp(max=settings.sharpest)
        by_word = contrastive_loss(images[:words], texts, scale, same)
        loss = by_sight + settings.words * by_word
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(learned, 1.0)
        optimiser.step()
        if step % 100 == 99 or step == steps - 1:
            row = {
                "step": step + 1,
                "sight": float(by_sight.detach()),
                "word": float(by_word.detach()),
                "scale": float(network.scale().detach()),
                "seconds": time.perf_counter() - began,
            }
            trace.append({key: round(value, 4) for key, value in row.items()})
            print("base", seed, trace[-1], flush=True)
    with torch.no_grad():
        network.model.logit_scale.fill_(math.log(settings.softened))  # type: ignore[operator]
    network.renew_head()
    model.eval().cpu().save(out)
    return {"trace": trace, "seconds": round(time.perf_counter() - began, 1)}


def new_base(sources: Sources, settings: Settings, seed: int, work: Path) -> Classifier:
    """A tower of the wanted size that has learned nothing yet."""
    place = work / f"new-{seed}"
    if not place.is_dir():
        new_model(
            "clip", sources.captions, place, size=SIDE, seed=seed,
            projection_dim=settings.projection, vocabulary=3000, context=24,
            vision={"patch_size": 8, "hidden_size": settings.width,
                    "intermediate_size": 4 * settings.width,
                    "num_hidden_layers": settings.layers,
                    "num_attention_heads": settings.width // 64, "hidden_act": "gelu"},
            text={"hidden_size": settings.text_width,
                  "intermediate_size": 4 * settings.text_width,
                  "num_hidden_layers": settings.text_layers,
                  "num_attention_heads": settings.text_width // 64, "hidden_act": "gelu"},
        )  # fmt: skip
    return load_for(str(place), sources.captions, prompts=sources.captions.prompts)


def chosen(sources: Sources, settings: Settings, draw: Generator) -> Tensor:
    """The rows of a step: those with words first."""
    device = sources.pixels.device
    found = [
        group[torch.randint(len(group), (count,), generator=draw).to(device)]
        for group, count in zip(sources.groups, settings.spoken, strict=True)
    ]
    counts, starts = sources.counts, sources.counts.cumsum(0) - sources.counts
    rest = settings.batch - sum(settings.spoken)
    share = torch.tensor([SHARES[name] for name in sources.names])
    of = torch.multinomial(share, rest, replacement=True, generator=draw)
    place = (torch.rand(rest, generator=draw) * counts[of]).long().minimum(counts[of] - 1)
    return torch.cat([*found, (starts[of] + place).to(device)])


def generator(seed: int, step: int) -> Generator:
    return torch.Generator().manual_seed(1_000_003 * (seed + 1) + step)
