"""The rule that turns counts of images into a verdict; it is fixed before anything is counted.

Every check counts images that an honest model has few of: those that fell to the weaker of two
attacks alone, those without a gradient, and so on. A few are chance (an image beside a boundary),
so a count is held against a share that is forgiven, by the exact binomial distribution.
"""

from __future__ import annotations

from math import exp, lgamma, log, log1p

from stockpot.results.schema import Finding, Verdict

FEWEST = 20
"""With fewer images that are right as they are nobody is cleared."""
FORGIVEN, DOUBT = 0.05, 0.02
"""Up to this share of images is chance when convicting, and when raising suspicion."""
SURE, LIKELY = 0.01, 0.05
"""How improbable a count must be at that share, to convict and to raise suspicion."""

_RULE = (
    f"convicted where the count has a chance below {SURE:.0%} if {FORGIVEN:.0%} of images are "
    f"forgiven, suspicious below {LIKELY:.0%} if {DOUBT:.0%} are (exact binomial)"
)


def judged(name: str, count: int, of: int, words: str, *, worst: Verdict = "convicted") -> Finding:
    """The verdict on a count of images, by the rule of shares.

    Args:
        name: of the check.
        count: images that speak against the model.
        of: images that were asked.
        words: what was seen.
        worst: what the check can say at worst.
    """
    verdict: Verdict = "cleared"
    if chance(count, of, DOUBT) < LIKELY:
        verdict = "suspicious"
    if worst == "convicted" and chance(count, of, FORGIVEN) < SURE:
        verdict = "convicted"
    return Finding(
        name=name, verdict=verdict, count=count, of=of, low=lower(count, of), rule=_RULE,
        words=words,
    )  # fmt: skip


def forbidden(name: str, count: int, of: int, words: str, *, verdict: Verdict) -> Finding:
    """The verdict on what an honest model never does."""
    return Finding(
        name=name, verdict=verdict if count else "cleared", count=count, of=of,
        rule=f"{verdict}: one is enough", words=words,
    )  # fmt: skip


def told(name: str, count: int, of: int, words: str) -> Finding:
    """What a reader should know and nobody is blamed for."""
    return Finding(
        name=name, verdict="cleared", count=count, of=of, rule="told, not judged", words=words
    )


def chance(count: int, of: int, share: float) -> float:
    """How probable at least so many are when each image has that share."""
    if not 0 < share < 1:
        return float(count <= of * share)
    whole = lgamma(of + 1)
    return sum(
        exp(
            whole - lgamma(k + 1) - lgamma(of - k + 1)
            + k * log(share) + (of - k) * log1p(-share)
        )
        for k in range(count, of + 1)
    )  # fmt: skip


def lower(count: int, of: int) -> float:
    """The exact (Clopper-Pearson) one-sided 99 % bound on the share from below."""
    low, high = 0.0, count / of if of else 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(count, of, middle) < SURE else (low, middle)
    return low
