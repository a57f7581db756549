"""ImageNet-C-bar and CIFAR-10-C-bar against pixels that their authors' code made.

`data/c_bar.npz` holds what facebookresearch/augmentation-corruption drew and what it made of the
first picture of `corruptions.npz` at severity 3: whole at 32 px, every sixteenth pixel at 224 px.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stockpot.corrupt.bar import caustic, cutout, perlin, sparkles, spectrum, splines, warp, waves
from stockpot.corrupt.bar.strengths import CIFAR_10_C_BAR, IMAGENET_C_BAR, LARGE, SMALL

DATA = Path(__file__).parent / "data"
CASES = [(name, 32) for name in SMALL] + [(name, 224) for name in IMAGENET_C_BAR]
EDGES = {
    # Where a threshold, the end of a ring or of a ray falls between two pixels in single precision.
    "blue_noise_sample": 0.002,
    "checkerboard_cutout": 0.002,
    "cocentric_sine_waves": 0.002,
    # The last pixel of an antialiased line is drawn or not.
    "lines": 0.01,
}


class Case:
    """What was drawn for one corruption."""

    def __init__(self, name: str, side: int) -> None:
        self.name, self.side = name, side
        with np.load(DATA / "corruptions.npz") as file:
            image = torch.from_numpy(file[f"images_{side}"][:1])
        self.pixels = image.permute(0, 3, 1, 2).contiguous()
        with np.load(DATA / "c_bar.npz") as file:
            key = f"{name}_{side}"
            self.made = torch.from_numpy(file[key])
            self.drawn = {
                item.removeprefix(f"{key}__"): file[item]
                for item in file.files
                if item.startswith(f"{key}__")
            }

    def number(self, name: str) -> Tensor:
        return torch.from_numpy(np.atleast_1d(self.drawn[name])).float()

    def seeded(self) -> Any:
        return np.random.RandomState(int(self.drawn["seed"]))

    def phases(self, channels: int) -> Tensor:
        state, side = self.seeded(), self.side
        drawn = [state.uniform(0, 2 * np.pi, (side, side // 2)) for _ in range(channels)]
        return torch.from_numpy(np.stack(drawn) / (2 * np.pi)).float()[None]

    def lengths(self, state: Any, rays: int, radius: float) -> Tensor:
        drawn = [radius + 0.25 * radius * state.randn() for _ in range(rays)]
        return torch.tensor([drawn]).float()


def ours(case: Case) -> Tensor:
    pixels, side = case.pixels, case.side
    strength = (SMALL if side == 32 else LARGE)[case.name][2]
    match case.name:
        case "blue_noise_sample":
            noise = spectrum.coloured(case.phases(1), pixels, colour="blue")
            return spectrum.keep_above(pixels, noise, 0.3 * strength - 2.5)
        case "brownish_noise":
            noise = spectrum.coloured(case.phases(3), pixels, colour="brown")
            return spectrum.add(pixels, noise, 6.4 * strength)
        case "caustic_refraction":
            light = caustic.caustics(pixels, case.number("time"), case.number("size"))
            return caustic.refract(pixels, light, 0.05 * side * strength, 0.2 * strength)
        case "checkerboard_cutout":
            square = float(case.drawn["scales"][0])
            count = int(4 * side // square)
            chosen = case.seeded().uniform(size=(count, count)) < strength / 10
            return cutout.cut_squares(
                pixels, case.number("angle"), torch.tensor([square]), torch.from_numpy(chosen)[None]
            )
        case "cocentric_sine_waves":
            right, down = case.number("offset").split(1)
            given = (case.number(key) for key in ("freq", "amplitude", "ring_width"))
            return waves.rings(pixels, (right, down), *given, 12.8 * strength)
        case "plasma_noise":
            given = (case.number(key) for key in ("time", "iterations", "sharpness", "scale"))
            return waves.plasma(pixels, *given, 6.4 * strength)
        case "single_frequency_greyscale":
            across, down = case.number("freq").split(1)
            return waves.wave(pixels, across, down, case.number("phase"), 19.6 * strength)
        case "perlin_noise":
            order = torch.from_numpy(case.drawn["p"]).long()[None]
            return perlin.turbulence(pixels, order, case.number("g")[None], strength / 20)
        case "sparkles":
            state, values = case.seeded(), pixels.float()
            for centre, rays in zip(case.number("centers"), case.drawn["nrays"], strict=True):
                lengths = case.lengths(state, rays, 0.01 * strength * side).clamp(min=1)
                place = (centre[:1], centre[1:])
                light = sparkles.shine(values, place, torch.tensor([rays]), lengths, 1.0)
                values = sparkles.whiten(values, light)
            return values.clamp(0, 255).to(torch.uint8)
        case "inverse_sparkles":
            rays = int(case.drawn["rays"])
            lengths = case.lengths(case.seeded(), rays, 0.25 * side)
            place = case.number("center").split(1)
            light = sparkles.shine(pixels, place, torch.tensor([rays]), lengths, 0.13 * strength)
            return sparkles.whiten(pixels.float(), 1 - light).clamp(0, 255).to(torch.uint8)
        case "lines":
            starts, ends, state = [], [], case.seeded()
            for _ in range(int(strength / 10 * side)):
                x, y = side * state.uniform(), side * state.uniform()
                spread = 2 * np.pi * float(case.drawn["angle_variation"])
                angle = float(case.drawn["angle"]) + spread * (state.uniform() - 0.5)
                right, down = np.cos(angle) * side, np.sin(angle) * side
                starts.append([int(x - right), int(y - down)])
                ends.append([int(x + right), int(y + down)])
            return cutout.draw_lines(
                pixels, torch.tensor([starts]).float(), torch.tensor([ends]).float()
            )
        case "pinch_and_twirl":
            return warp.twirl(pixels, case.number("angles")[None], float(case.drawn["amount"]))
        case "ripple":
            length, phase = case.number("wavelengths")[None], case.number("phases")[None]
            return warp.sway(pixels, length, phase, float(case.drawn["amplitudes"][0]))
        case "transverse_chromatic_abberation":
            scales = case.drawn["scales"]
            return splines.zoom_apart(
                pixels, torch.from_numpy(scales.argsort().argsort())[None], float(scales.max() - 1)
            )
        case "circular_motion_blur":
            return splines.turn_blur(pixels, float(case.drawn["amount"]))
    raise AssertionError(case.name)


@pytest.mark.parametrize(("name", "side"), CASES)
def test_pixels_are_the_authors(name: str, side: int) -> None:
    case = Case(name, side)
    found = ours(case)[0].permute(1, 2, 0)
    found = found if side == 32 else found[3::16, 5::16]
    apart = (found.int() - case.made.int()).abs()
    allowed = EDGES.get(name, 0)
    assert (apart > 1).float().mean() <= allowed
    assert (apart > 0).float().mean() <= 0.02 + allowed


def test_strengths_are_the_published_files() -> None:
    """Sums of the two published tables, row by row added up from their files."""
    assert len(IMAGENET_C_BAR) == len(CIFAR_10_C_BAR) == 10
    assert sum(map(sum, IMAGENET_C_BAR.values())) == pytest.approx(239.1)
    assert sum(map(sum, CIFAR_10_C_BAR.values())) == pytest.approx(216.5)
    assert all(list(row) == sorted(row) for row in (*LARGE.values(), *SMALL.values()))
