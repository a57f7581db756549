"""CLAHE against OpenCV, non-local means against scikit-image, on the same pictures.

The expected arrays were made with OpenCV 5.0.0 and scikit-image 0.26.0 by

    value = images_224.max(3)
    cv2.createCLAHE(clip, (tiles, tiles)).apply(value[k])

    noisy = crop of picture k plus N(0, 0.1), in 8 bits
    sigma = estimate_sigma(noisy / 255, average_sigmas=True, channel_axis=-1)
    denoise_nl_means(noisy / 255, patch_size=7, patch_distance=11, h=0.8 * sigma, sigma=sigma,
                     fast_mode=True, channel_axis=-1)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from stockpot.defend.clahe import equalise, equalise_colour
from stockpot.defend.nlm import denoise, estimate_noise

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    with np.load(DATA / "defences.npz") as file:
        return {key: file[key] for key in file.files}


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    with np.load(DATA / "corruptions.npz") as file:
        return torch.from_numpy(file["images_224"]).permute(0, 3, 1, 2).contiguous()


@pytest.mark.parametrize(("clip", "tiles"), [(2.0, 8), (40.0, 8), (3.0, 5)])
def test_clahe_is_opencvs(
    clip: float, tiles: int, expected: dict[str, np.ndarray], pictures: torch.Tensor
) -> None:
    ours = equalise(pictures.amax(1).long(), clip, tiles)
    for row in range(len(pictures)):
        assert np.array_equal(ours[row].numpy(), expected[f"clahe_{clip:g}_{tiles}_{row}"])


def test_clahe_is_the_installed_opencvs_at_odd_sizes(pictures: torch.Tensor) -> None:
    cv2 = pytest.importorskip("cv2")
    for height, width in ((33, 50), (64, 61), (128, 200)):
        value = pictures.amax(1)[:, :height, :width].contiguous()
        ours = equalise(value.long(), 2.0, 8)
        for row in range(len(value)):
            theirs = cv2.createCLAHE(2.0, (8, 8)).apply(value[row].numpy())
            assert np.array_equal(ours[row].numpy(), theirs)


def test_clahe_keeps_hue_and_saturation(pictures: torch.Tensor) -> None:
    pixels = pictures.float() / 255
    result = equalise_colour(pixels, 2.0, 8)
    for image in (pixels, result):
        assert image.min() >= 0
        assert image.max() <= 1
    ratio = result / pixels.clamp(min=1e-3)
    lit = (pixels.amin(1, keepdim=True) > 0.05).expand_as(ratio)
    spread = (ratio.amax(1) - ratio.amin(1))[lit[:, 0]]
    assert spread.abs().max() < 1e-3


@pytest.mark.parametrize("row", [0, 1])
def test_the_noise_estimate_and_non_local_means_are_scikit_images(
    row: int, expected: dict[str, np.ndarray]
) -> None:
    noisy = torch.from_numpy(expected[f"noisy_{row}"].transpose(2, 0, 1) / 255.0).float()[None]
    sigma = estimate_noise(noisy)
    assert float(sigma[0]) == pytest.approx(float(expected[f"sigma_{row}"]), rel=1e-3)
    ours = denoise(noisy, sigma, 0.8 * sigma, patch=7, distance=11)[0].permute(1, 2, 0)
    difference = np.abs(ours.numpy() - expected[f"nlm_{row}"] / 65535.0)
    assert difference.max() < 0.004  # one grey level
    assert difference.mean() < 3e-4
