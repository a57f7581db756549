"""Corruption error: the arithmetic of CE, mCE and their relative forms, with named baselines.

    CE_c   = sum over severities of the model's error  /  the same sum of the baseline's error
    mCE    = mean of CE_c over the benchmark's fifteen corruptions
    relative CE_c  the same after subtracting each side's clean error from every term

Numbers differ with the baseline, so each carries its name (Hendrycks and Dietterich,
arXiv:1903.12261, sections 4.1 and C). All errors and ratios are fractions: 0.767 is an mCE of 76.7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from stockpot.corrupt import BENCHMARK, EXTRA, SEVERITIES
from stockpot.datasets.corrupted.families import Family
from stockpot.errors import BadParameterError

Errors = Mapping[str, Mapping[float, float]]
"""Error rates by corruption and severity."""

IMAGENET_C = Family("ImageNet-C", BENCHMARK, EXTRA)

ALEXNET_CLEAN = 0.4348
"""Top-1 error of torchvision's AlexNet on the clean ImageNet validation set."""

# Top-1 errors of torchvision's AlexNet on ImageNet-C at severities 1 to 5, as its authors gave them
# (hendrycks/robustness, issue 10). By name: the common mistake is to apply them by position.
ALEXNET: dict[str, tuple[float, float, float, float, float]] = {
    "gaussian_noise": (0.69528, 0.82542, 0.93554, 0.98138, 0.99452),
    "shot_noise": (0.71224, 0.85108, 0.93574, 0.98182, 0.99146),
    "impulse_noise": (0.78374, 0.89808, 0.94870, 0.98720, 0.99548),
    "defocus_blur": (0.65624, 0.73202, 0.85036, 0.91364, 0.94714),
    "glass_blur": (0.64308, 0.75054, 0.88806, 0.91622, 0.93344),
    "motion_blur": (0.58430, 0.70048, 0.82108, 0.89750, 0.92638),
    "zoom_blur": (0.70008, 0.76992, 0.80784, 0.84198, 0.87198),
    "snow": (0.71726, 0.88392, 0.86468, 0.91870, 0.94952),
    "frost": (0.61390, 0.79734, 0.88790, 0.89942, 0.93430),
    "fog": (0.67474, 0.76050, 0.84378, 0.87260, 0.94500),
    "brightness": (0.45140, 0.48502, 0.54048, 0.62166, 0.72440),
    "contrast": (0.64548, 0.76150, 0.88874, 0.97760, 0.99270),
    "elastic_transform": (0.52596, 0.70116, 0.55686, 0.64076, 0.80554),
    "pixelate": (0.52218, 0.54620, 0.73728, 0.87092, 0.91262),
    "jpeg_compression": (0.51002, 0.54718, 0.57294, 0.65458, 0.74778),
}

ALEXNET_MEANS: dict[str, float] = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
    # The four for validation, to three digits, from appendix C.
    "speckle_noise": 0.845,
    "gaussian_blur": 0.787,
    "spatter": 0.718,
    "saturate": 0.658,
}
"""The usual constants: AlexNet's mean error over the five severities."""

SMALLEST_DENOMINATOR = 0.01
"""A baseline that errs (or loses) less than one point in the mean is no yardstick: the ratio is
then noise divided by noise, and is left out."""


@dataclass(frozen=True)
class Baseline:
    """The model that errors are divided by: its errors, its clean error, its name."""

    name: str
    errors: Errors
    clean: float | None = None

    def mean(self, corruption: str, severities: Sequence[float]) -> float | None:
        """Its mean error over these severities; none where it was not measured."""
        cells = self.errors.get(corruption, {})
        if any(severity not in cells for severity in severities):
            return None
        return fmean(cells[severity] for severity in severities)


@dataclass(frozen=True)
class MeanBaseline(Baseline):
    """A baseline of which only the mean over all five severities is known."""

    def mean(self, corruption: str, severities: Sequence[float]) -> float | None:
        """The constant, if all five severities were measured."""
        return super().mean(corruption, severities) if set(severities) == set(SEVERITIES) else None


NAMED_BASELINES = ("alexnet-constants", "alexnet-severities", "none")


def named_baseline(name: str) -> Baseline | None:
    """`alexnet-constants`, `alexnet-severities`, or `none` for plain errors."""
    match name:
        case "alexnet-constants":
            levels: tuple[float, ...] = SEVERITIES
            means = {key: dict.fromkeys(levels, mean) for key, mean in ALEXNET_MEANS.items()}
            return MeanBaseline(name, means, ALEXNET_CLEAN)
        case "alexnet-severities":
            rows: dict[str, dict[float, float]] = {
                key: dict(zip(SEVERITIES, row, strict=True)) for key, row in ALEXNET.items()
            }
            return Baseline(name, rows, ALEXNET_CLEAN)
        case "none":
            return None
    raise BadParameterError(
        "baseline: expected alexnet-constants, alexnet-severities, none or a measured model, "
        f"got {name!r}."
    )


@dataclass(frozen=True)
class CorruptionScore:
    """CE by corruption and their means; `left_out` says which had no usable denominator."""

    convention: str
    ce: Mapping[str, float]
    mce: float | None
    relative_ce: Mapping[str, float]
    relative_mce: float | None
    left_out: tuple[str, ...]
    relative_left_out: tuple[str, ...]


def score(
    errors: Errors,
    clean: float | None,
    baseline: Baseline | None,
    family: Family = IMAGENET_C,
) -> CorruptionScore:
    """CE, mCE, relative CE and relative mCE of a model.

    The means run over those of the benchmark's corruptions (ImageNet-C has fifteen) that were
    measured; extra corruptions never enter them. Without a baseline CE is the plain mean error,
    and the relative CE the plain loss against clean.

    Args:
        errors: the model's errors by corruption and severity.
        clean: its clean error; without it nothing relative is computed.
        baseline: what to divide by, or none.
        family: the benchmark.
    """
    ce: dict[str, float] = {}
    relative: dict[str, float] = {}
    for corruption, cells in errors.items():
        severities = sorted(cells)
        error = fmean(cells.values())
        divisor = 1.0 if baseline is None else baseline.mean(corruption, severities)
        if divisor is not None and divisor >= SMALLEST_DENOMINATOR:
            ce[corruption] = error / divisor
        if clean is None or divisor is None:
            continue
        if baseline is not None:
            if baseline.clean is None:
                continue
            divisor -= baseline.clean
        if divisor >= SMALLEST_DENOMINATOR:
            relative[corruption] = (error - clean) / divisor
    measured = [corruption for corruption in family.corruptions if corruption in errors]
    return CorruptionScore(
        convention=_convention(errors, baseline, family),
        ce=ce,
        mce=_mean(ce, measured),
        relative_ce=relative,
        relative_mce=_mean(relative, measured),
        left_out=tuple(name for name in measured if name not in ce),
        relative_left_out=tuple(name for name in measured if name not in relative),
    )


def mean_accuracy(errors: Errors, family: Family = IMAGENET_C) -> float:
    """Mean corruption accuracy over all measured cells of the benchmark's corruptions."""
    own = family.corruptions
    chosen = [cells for name, cells in errors.items() if name in own] or errors.values()
    return 1 - fmean(error for cells in chosen for error in cells.values())


def _mean(values: Mapping[str, float], measured: Sequence[str]) -> float | None:
    chosen = [values[name] for name in measured if name in values]
    return fmean(chosen) if chosen else None


def _convention(errors: Errors, baseline: Baseline | None, family: Family) -> str:
    name = f"mce:{baseline.name if baseline else 'none'}"
    name += "" if family == IMAGENET_C else f":{family.name}"
    count, every = len(family.corruptions), 5 if family.graded else 1
    kinds = sum(corruption in errors for corruption in family.corruptions)
    levels = {severity for cells in errors.values() for severity in cells}
    complete = kinds == count and all(len(cells) == every for cells in errors.values())
    complete &= levels <= set(SEVERITIES)
    return name if complete else f"{name}:{kinds}-of-{count}x{len(levels)}"
