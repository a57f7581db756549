"""The sequences of ImageNet-P and the flips along them.

`data/imagenet_p.npz` holds frames that torchvision, Pillow, OpenCV and scikit-image made as the
authors' scripts (hendrycks/robustness, `make_cifar_p.py`) use them: frames 0, 9 and the last.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from pico import make_classifier, make_dataset
from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.sequences.frames import frames
from stockpot.corrupt.sequences.steps import EXTRA, PERTURBATIONS
from stockpot.datasets.dataset import Dataset, TensorImages
from stockpot.errors import UserError
from stockpot.measure.measurement import Context
from stockpot.measure.perturbation.flips import Sequence
from stockpot.measure.perturbation.perturbation import perturbation, photograph
from stockpot.results.headline import headline_columns
from stockpot.types import ImageSize

ORACLES = Path(__file__).parents[1] / "oracles" / "data"


def pictures(side: int) -> Tensor:
    with np.load(ORACLES / "corruptions.npz") as file:
        return torch.from_numpy(file[f"images_{side}"]).permute(0, 3, 1, 2).contiguous()


@pytest.mark.parametrize(
    "name",
    ["zoom_blur", "brightness", "translate", "rotate", "tilt", "scale", "gaussian_blur"],
)
def test_frames_are_those_of_the_libraries_that_made_them(name: str) -> None:
    with np.load(ORACLES / "imagenet_p.npz") as file:
        recorded = torch.from_numpy(file[name]).int()
    made = [frame[0].permute(1, 2, 0).int() for frame in frames(pictures(32)[:1], name, seed=[0])]
    for expected, number in zip(recorded, (0, 9, -1), strict=True):
        apart = (made[number] - expected).abs()
        assert apart.max() <= 1
        assert apart.float().mean() <= 0.03


def test_what_lies_around_a_photograph_comes_into_view() -> None:
    with np.load(ORACLES / "imagenet_p.npz") as file:
        recorded = torch.from_numpy(file["rotate_large"]).int()
    side = ImageSize(160, 160)
    shown = [
        frame[0].permute(1, 2, 0)[3::8, 2::8].int()
        for frame in frames(pictures(224)[1:], "rotate", side=side, seed=[0], profile="imagenet")
    ]
    for expected, number in zip(recorded, (0, 9, 30), strict=True):
        assert (shown[number] - expected).abs().max() <= 1


def test_photographs_stand_in_the_middle_of_their_canvas() -> None:
    canvas = np.array(photograph(Image.new("RGB", (600, 400), "white")))
    assert canvas.shape == (560, 560, 3)
    rows, columns = canvas[:, 280, 0].nonzero()[0], canvas[280, :, 0].nonzero()[0]
    assert (rows[0], rows[-1], columns[0], columns[-1]) == (152, 407, 88, 471)


@pytest.mark.parametrize("name", [*PERTURBATIONS, *EXTRA])
def test_a_picture_depends_on_its_own_seed_alone(name: str) -> None:
    both = pictures(32)
    together = list(frames(both, name, seed=[7, 8]))
    alone = list(frames(both[1:], name, seed=[8]))
    assert len(together) == {"motion_blur": 21, "translate": 16}.get(name, 31)
    for one, other in zip(together, alone, strict=True):
        assert torch.equal(one[1:], other)
        assert one.shape == both.shape
        assert one.dtype == torch.uint8
    # Near the vertical two directions of fall may take the same pixels.
    repeated = sum(torch.equal(one, other) for one, other in itertools.pairwise(together))
    assert repeated <= (2 if name == "snow" else 0)


def test_noise_begins_clean_and_is_that_of_the_corruption() -> None:
    clean = pictures(32)
    first, second, *_ = frames(clean, "gaussian_noise", seed=[0, 1], difficulty=2)
    assert torch.equal(first, clean)
    # Deviation 0.04, severity 1 of CIFAR-10-C: the same strength, other draws.
    same = corrupt(clean, "gaussian_noise", 1)
    spread = [float((one.float() - clean.float()).square().mean()) for one in (second, same)]
    assert spread[0] == pytest.approx(spread[1], rel=0.05)


# By the functions of the authors' test.py, over cumulative sums of normal numbers.
PUBLISHED = {
    (True, 1): (0.5, 8.75),
    (True, 3): (0.5, 8.75),
    (False, 1): (0.29166666666666663, 4.458333333333334),
    (False, 2): (0.4285714285714286, 5.666666666666668),
    (False, 3): (0.5555555555555556, 6.944444444444445),
}


@pytest.mark.parametrize(("noise", "step"), PUBLISHED)
def test_flips_and_distances_are_the_published_functions(noise: bool, step: int) -> None:
    logits = np.random.RandomState(3).randn(3, 9, 12).cumsum(1).astype(np.float32)
    sequence = Sequence(noise=noise, step=step)
    for frame in torch.from_numpy(logits).unbind(1):
        sequence.see(frame)
    flips, distance = PUBLISHED[noise, step]
    assert float(sequence.flips.float().mean()) == pytest.approx(flips)
    assert float(sequence.distances.float().mean()) == pytest.approx(distance)


def test_no_answer_is_like_no_other() -> None:
    sequence = Sequence(noise=False)
    for frame in (torch.eye(8)[:2], torch.full((2, 8), torch.nan), torch.full((2, 8), torch.inf)):
        sequence.see(frame)
    assert sequence.flips.all()
    assert (sequence.distances == 5 + 4 + 3 + 2 + 1).all()  # none of the five is found again


class Threshold(nn.Module):
    """Says whether a picture is as bright as it was; two classes that never matter besides."""

    def __init__(self, level: float) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.tensor(level / 255))

    def forward(self, pixels: Tensor) -> Tensor:
        over = pixels.mean((1, 2, 3)) - self.level
        nothing = torch.full_like(over, -9)
        return torch.stack([over, -over, nothing, nothing], 1)


def grey(level: int) -> Dataset:
    data = make_dataset(8)
    assert isinstance(data.images, TensorImages)
    data.images.pixels.fill_(level)
    return data


@pytest.mark.parametrize(("difficulty", "flips"), [(1, 1 / 30), (2, 2 / 29), (3, 3 / 28)])
def test_a_threshold_is_crossed_once(difficulty: int, flips: float) -> None:
    """Brightness rises through it between two frames; the two best classes change places."""
    data, model = grey(128), make_classifier(Threshold(127.5))
    found = perturbation(
        model,
        data,
        Context(),
        perturbations=("brightness", "translate"),
        difficulty=difficulty,  # type: ignore[arg-type]
    )
    by_name = {s.condition["perturbation"]: s for s in found.scores if s.condition}
    assert {s.metric for s in found.scores} == {
        *("flip_probability", "mfp", "top5_distance", "mut5d"),
    }
    lights = [s for s in found.scores if s.condition.get("perturbation") == "brightness"]
    assert [s.value for s in lights] == pytest.approx([flips, 2 * flips])
    assert by_name.keys() == {"brightness", "translate"}
    assert found.convention == "mfr:none:2-of-10"
    assert len([name for name in found.outcomes if "brightness" in name]) == 31 - difficulty


def test_a_model_is_its_own_yardstick(pico_vit: Path) -> None:
    from stockpot.measure.run import measure

    params = {"perturbations": "rotate,shot_noise", "baseline": str(pico_vit), "difficulty": 3}
    (result,) = measure({"a": pico_vit}, {"perturbation": params}, data=make_dataset(6))
    assert result.score("mfr").value == pytest.approx(1)
    assert result.score("mt5d").value == pytest.approx(1)
    assert result.score("mfr").condition["baseline"] == "pico-vit"
    shown = [column.title for column in headline_columns([result])]
    assert not any("flip" in title for title in shown), "single perturbations are details"


def test_mistakes_are_explained() -> None:
    with pytest.raises(UserError, match="perturbation named 'rotat'"):
        next(frames(pictures(32), "rotat", seed=[0, 1]))
    with pytest.raises(UserError, match="expected 1, 2 or 3"):
        next(frames(pictures(32), "rotate", seed=[0, 1], difficulty=4))
