"""The numbers behind the advice: each stands in a study, and `docs/choosing.md` quotes it.

This is their one home: the page repeats these sentences word by word, and a test looks every number
up in the study that is named.
"""

from __future__ import annotations

from typing import NamedTuple


class Evidence(NamedTuple):
    """What a study has shown."""

    because: str
    """With its numbers: points of accuracy, and 95 % intervals."""
    study: str
    """The folder under `studies`."""

    @property
    def link(self) -> str:
        """Where it can be read, from the root of the repository."""
        return f"studies/{self.study}/README.md"


EVIDENCE = {
    "average": Evidence(
        "one pass, no settings; experts of seven tasks: +8.5 [+7.7, +9.4] over the base, and "
        "`task_arithmetic` at its published scale was not told apart from it",
        "clip_headroom",
    ),
    "regmean": Evidence(
        "+7.2 [+6.6, +7.9] over `ties`, with 256 unlabelled images of each task",
        "clip_headroom",
    ),
    "spectral": Evidence(
        "`tsv_m` +7.5 [+6.8, +8.4] and `iso_c` +7.0 [+6.3, +7.6] over `task_arithmetic`: the "
        "best without any image",
        "clip_headroom",
    ),
    "grow": Evidence(
        "+7.6 [+7.1, +8.1]; with a mask for each task 66.1 [65.5, 66.6] of the experts' 67.9",
        "clip_fusion",
    ),
    "adamerging": Evidence(
        "by layer +1.2 [+0.6, +1.8] over `regmean`, on the images that it learned on; in a pool "
        "whose base is too sure of itself it was below it",
        "clip_headroom",
    ),
    "routers": Evidence(
        "`wemoe` +7.2 [+6.5, +7.9] over `adamerging`, on the images that its routers learned on, "
        "and -6.2 [-6.8, -5.6] to the experts; in a pool with little left to learn it was below",
        "clip_headroom",
    ),
    "orthogonal": Evidence(
        "with seven almost orthogonal changes there is little to resolve by signs: `ties` less "
        "`task_arithmetic` -1.8 [-2.9, -0.7]",
        "clip_headroom",
    ),
    "scale": Evidence(
        "the sum of five changes: 56.7 [56.1, 57.3] at a scale of 0.2 and 56.6 [56.0, 57.2] at "
        "0.3, but 51.5 [51.0, 52.1] at 0.5, below the base, and 24.2 [23.8, 24.7] at 1.0",
        "clip_fusion",
    ),
    "defaults": Evidence(
        "at their published settings `della` was -4.1 [-4.8, -3.4] and `wudi` -3.7 [-4.4, -3.1], "
        "below the base",
        "clip_fusion",
    ),
    "unseen": Evidence(
        "on tasks that no member saw every fusion was below the base's 53.6 [52.4, 54.9]: `smile` "
        "45.9 [44.7, 47.1], `average` 49.3 [48.1, 50.6], `ties` 53.1 [51.9, 54.4]",
        "clip_fusion",
    ),
    "wise_ft": Evidence(
        "outside the training data +3.2 [+2.0, +4.7] after a tuning on drawings, for -6.1 [-8.8, "
        "-3.4] inside; alpha 0.8, chosen on validation images, +1.9 [+1.2, +2.7] with nothing lost "
        "that could be told apart inside; it is free",
        "robust_finetuning",
    ),
    "apart": Evidence(
        "halfway between two networks of different seeds accuracy is 51.2 [50.1, 52.3] points "
        "below both, with BatchNorm statistics estimated anew",
        "robust_soups",
    ),
    "units": Evidence(
        "five pairs of residual networks, at 64.1 [63.1, 65.0] and 63.9 [63.0, 64.9]: their "
        "average is at 24.7 [22.0, 27.5], permuted at 53.1 [52.0, 54.3], with `zipit` at 53.3 "
        "[52.2, 54.3], with `pleas` by activations at 59.2 [58.1, 60.3], below both members still",
        "trained_apart",
    ),
    "batch_norm": Evidence(
        "the average of two networks of different starts is at 12.2 [11.2, 13.4] as it is, and at "
        "24.7 [22.0, 27.5] with BatchNorm statistics estimated anew",
        "trained_apart",
    ),
    "norms": Evidence(
        "a few epochs turn one norm's robustness into another's, and the best soup under the "
        "union mixes l_inf and l_1 members alone, +1.1 [+0.3, +1.8] over those with an l_2 member; "
        "training against both at once was better still: MAX +7.0 [+6.4, +7.6] over the best soup",
        "robust_soups",
    ),
    "shots": Evidence(
        "a point below 500 labels, -0.9 [-1.1, -0.7]; ten labels did worse than knowing which "
        "member to take",
        "robust_soups",
    ),
}  # fmt: skip
