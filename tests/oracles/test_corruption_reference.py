"""The corruptions against what the original code produced with the original libraries."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch
from corruption_reference import SIDES, psnr, reference
from original_fields import ORIGINAL, generator
from torch import Tensor

from stockpot.corrupt import SEVERITIES
from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.constants import TABLES, Profile
from stockpot.corrupt.weather.frost import lay_over, overlay_sheet

DETERMINISTIC = (
    "gaussian_blur",
    "defocus_blur",
    "zoom_blur",
    "brightness",
    "contrast",
    "saturate",
    "pixelate",
)
PROFILES: tuple[Profile, ...] = ("imagenet", "cifar")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_deterministic_ones_match_within_one_grey_level(name: str, profile: Profile) -> None:
    clean = reference().clean(profile)
    for severity in SEVERITIES:
        ours = corrupt(clean, name, severity, profile=profile)
        assert reference().difference(profile, name, severity, ours).max() <= 1


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", sorted(ORIGINAL))
def test_random_ones_match_when_fed_the_original_fields(name: str, profile: Profile) -> None:
    # What remains: sums in single instead of double precision fall on the other side of a
    # truncation here and there (one level), and in snow a flake at the threshold appears or not.
    clean = reference().clean(profile)
    for severity in SEVERITIES:
        constants = TABLES[profile][name][severity - 1]
        ours = torch.cat(
            [
                ORIGINAL[name](clean[row : row + 1], constants, generator(severity, row))
                for row in range(len(clean))
            ]
        )
        difference = reference().difference(profile, name, severity, ours)
        assert (difference <= 1).float().mean() >= 0.999
        if name != "snow":
            assert difference.max() <= 1


@pytest.mark.skipif(
    importlib.util.find_spec("imagecorruptions") is None, reason="the photographs are not installed"
)
@pytest.mark.parametrize("profile", PROFILES)
def test_frost_matches_with_the_photographs(profile: Profile) -> None:
    clean, side = reference().clean(profile), SIDES[profile]
    for severity in SEVERITIES:
        constants = TABLES[profile]["frost"][severity - 1]
        sheet = overlay_sheet("photographs", constants[2], side, side, torch.device("cpu"))
        results = []
        for row in range(len(clean)):
            random = generator(severity, row)
            chosen = random.randint(5)
            corner = [random.randint(0, int(room)) for room in sheet.free[chosen]]
            picture, place = clean[row : row + 1], torch.tensor([corner])
            results.append(lay_over(picture, constants, sheet, torch.tensor([chosen]), place))
        difference = reference().difference(profile, "frost", severity, torch.cat(results))
        assert difference.max() <= 1


# The mean PSNR of 200 frosted pictures (both, a hundred times) per severity with the photographs:
# psnr(corrupt(clean.repeat(100, 1, 1, 1), "frost", severity, overlays="photographs"), clean).mean()
FROST_PSNR: dict[Profile, tuple[float, ...]] = {
    "imagenet": (12.69, 11.01, 9.79, 9.93, 9.68),
    "cifar": (18.25, 15.13, 13.64, 14.19, 14.18),
}


@pytest.mark.parametrize("profile", PROFILES)
def test_our_frost_is_as_strong_as_the_photographs(profile: Profile) -> None:
    clean = reference().clean(profile).repeat(100, 1, 1, 1)
    for severity, expected in zip(SEVERITIES, FROST_PSNR[profile], strict=True):
        ours = psnr(corrupt(clean, "frost", severity), clean).mean()
        assert float(ours) == pytest.approx(expected, abs=0.25)


@pytest.mark.parametrize("profile", PROFILES)
def test_our_frost_is_as_strong_as_the_reference_under_its_choice_of_overlays(
    profile: Profile,
) -> None:
    """Ten draws, of which each overlay and the place of each crop are the reference's."""
    clean, side = reference().clean(profile), SIDES[profile]
    stronger = []
    for severity in SEVERITIES:
        constants = TABLES[profile]["frost"][severity - 1]
        sheet = overlay_sheet("procedural", constants[2], side, side, torch.device("cpu"))
        for row in range(len(clean)):
            random = generator(severity, row)
            chosen = random.randint(5)
            corner = [int(random.random_sample() * int(room)) for room in sheet.free[chosen]]
            picture, place = clean[row : row + 1], torch.tensor([corner])
            ours = lay_over(picture, constants, sheet, torch.tensor([chosen]), place)
            expected = reference().expected(profile, "frost", severity)[row : row + 1]
            kept = reference().kept(profile, picture)
            stronger.append(psnr(reference().kept(profile, ours), kept) - psnr(expected, kept))
    assert abs(float(torch.stack(stronger).mean())) <= 0.5


@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_is_near_the_codec_of_the_published_files(severity: int) -> None:
    # The reference was made with IJG's libjpeg 9, whose chroma differs from libjpeg-turbo's: by
    # 0.7 levels in the mean at 224 px, and by 2 to 4.5 at 32 px and high quality.
    for profile in PROFILES:
        clean = reference().clean(profile)
        for codec, most in (("auto", 1.0), ("libjpeg-9", 0.5)):
            ours = corrupt(clean, "jpeg_compression", severity, codec=codec)
            difference = reference().difference(profile, "jpeg_compression", severity, ours)
            assert difference.float().mean() <= most


@pytest.mark.parametrize("name", sorted(ORIGINAL))
def test_own_draws_have_the_strength_of_the_original(name: str) -> None:
    """PSNR and channel statistics over many seeds equal those under the original generator."""
    repeats = 24
    clean = reference().clean("cifar")[:1]
    batch = clean.expand(repeats, -1, -1, -1)
    for severity in SEVERITIES:
        constants = TABLES["cifar"][name][severity - 1]
        ours = corrupt(batch, name, severity, seed=100)
        theirs = torch.cat(
            [
                ORIGINAL[name](clean, constants, np.random.RandomState(10_000 * severity + row))
                for row in range(repeats)
            ]
        )
        assert _apart(psnr(ours, clean), psnr(theirs, clean)) < 4.5
        for statistic in (_means, _deviations):
            for channel in range(3):
                one, two = statistic(ours)[:, channel], statistic(theirs)[:, channel]
                assert _apart(one, two) < 4.5


@pytest.mark.parametrize("name", sorted(ORIGINAL))
def test_own_draws_are_as_far_from_the_clean_picture_as_the_reference(name: str) -> None:
    """The mean PSNR over severities is within 0.5 dB, or within the reference's own chance.

    The reference has ten pictures per corruption, each with other random fields; where these differ
    much from each other (fog, elastic), the mean of ten is uncertain by about 0.3 dB.
    """
    clean = reference().kept("imagenet", reference().clean("imagenet"))
    ours, theirs = [], []
    for severity in SEVERITIES:
        whole = reference().clean("imagenet").repeat(2, 1, 1, 1)
        made = reference().kept("imagenet", corrupt(whole, name, severity, seed=severity * 100))
        ours.append(psnr(made, clean.repeat(2, 1, 1, 1)))
        theirs.append(psnr(reference().expected("imagenet", name, severity), clean))
    gap = torch.stack(ours).mean() - torch.stack(theirs).mean()
    spread = (torch.stack(theirs).std(1) ** 2).mean().sqrt() / len(SEVERITIES) ** 0.5
    assert gap.abs() < max(0.5, 3 * float(spread))


def _apart(one: Tensor, two: Tensor) -> float:
    """The difference of two means in standard errors, with a floor of a hundredth of a level."""
    error = (one.double().var() / len(one) + two.double().var() / len(two)).sqrt()
    return float((one.double().mean() - two.double().mean()).abs() / (error + 0.02))


def _means(images: Tensor) -> Tensor:
    return images.double().mean((2, 3))


def _deviations(images: Tensor) -> Tensor:
    return images.double().std((2, 3))
