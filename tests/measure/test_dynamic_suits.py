"""Generators and oracles meet data: any size, words for ids, and a line where they do not suit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from commands import invoke
from dual_encoders import make_clip
from dynamic_paper import Linear
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.cli.measure import _with_params
from stockpot.datasets.words.words import plain_words
from stockpot.dynamic.generators import generators
from stockpot.dynamic.grid import on_its_grid, working_size
from stockpot.dynamic.oracle import Setting
from stockpot.dynamic.oracles import oracles
from stockpot.dynamic.suitability import generator_notes
from stockpot.errors import UserError
from stockpot.measure.run import measure
from stockpot.models.autoencoder.coders import Architecture
from stockpot.models.autoencoder.files import save_autoencoder
from stockpot.models.autoencoder.model import Autoencoder
from stockpot.models.autoencoder.upbringing import upbringing_of
from stockpot.types import ImageSize


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An autoencoder of stride 16, as published ones have."""
    shape = Architecture(channels=4, multipliers=(1,) * 5, groups=2, codes=8, code_size=4)
    folder = tmp_path_factory.mktemp("deep")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        save_autoencoder(Autoencoder(shape), folder)
    return str(folder)


@pytest.mark.parametrize(("side", "inner"), [(28, 32), (299, 304)])
def test_sizes_that_the_stride_does_not_divide(deep: str, side: int, inner: int) -> None:
    result = measure(
        make_classifier(ReadsLabel(4), size=side),
        {
            "dynamic": {
                "oracle": "none",
                "budget": 2,
                "generator_params": {"autoencoder": deep},
                "pictures": 0,
            }
        },
        data=make_dataset(2, size=side),
    )[0]
    assert result.score("validation_rate").value == 1
    line = f"images of {side}x{side} px pass the generator at {inner}x{inner} px"
    assert any(line in note for note in result.notes)


def test_resizing_there_and_back_keeps_a_smooth_picture() -> None:
    class Sixteenths(Linear):
        grid = 16

    ramp = torch.linspace(0, 1, 28)
    picture = torch.stack([ramp.expand(28, 28), ramp.expand(28, 28).T, (ramp * 0.5).expand(28, 28)])
    maker = on_its_grid(Sixteenths(), ImageSize(28, 28))
    encoded = maker.encode(picture[None], torch.zeros(1, dtype=torch.long))
    assert encoded.latents.shape == (1, 3, 32, 32)
    assert (maker.decode(*encoded)[0] - picture).abs().max() < 0.02
    # A generator that takes the size is left alone; one may also have a size of its own.
    assert isinstance(on_its_grid(Sixteenths(), ImageSize(32, 48)), Sixteenths)
    Sixteenths.side = 64
    assert working_size(Sixteenths(), ImageSize(28, 35)) == ImageSize(64, 80)


def test_a_parameter_of_the_generator_on_the_command_line(
    deep: str, pico_vit: Path, toy_file: Path, tmp_path: Path
) -> None:
    words = ["measure", pico_vit, "--data", toy_file, "--limit", 4, "--with", "dynamic", "--json"]
    words += ["-p", "budget=1", "-p", "oracle=none", "-p", "generator_params.side=32"]
    done = invoke(*words, "-p", f"generator_params.autoencoder={deep}", "-o", tmp_path / "run")
    assert done.exit_code == 0, done.output
    (cell,) = json.loads(done.output[done.output.index("[{") :])
    inner = cell["key"]["params"]["generator_params"]
    assert inner["side"] == 32
    # The weights stand in the question by their content.
    assert inner["autoencoder"].startswith(f"{Path(deep).name}@")
    wrong = invoke(*words, "-p", "generator_params.autoencodr=x")
    assert "autoencodr" in wrong.output


def test_dotted_parameters_reach_their_measure() -> None:
    both = {"dynamic.generator_params.side": 3, "clean.top": 1, "dynamic.generator": "kl"}
    assert _with_params("clean,dynamic", both) == {
        "clean": {"top": 1},
        "dynamic": {"generator": "kl", "generator_params": {"side": 3}},
    }
    with pytest.raises(UserError, match="not among --with"):
        _with_params("clean,dynamic", {"generator_params.side": 3})
    with pytest.raises(UserError, match="given as 'x' already"):
        _with_params("dynamic", {"generator_params": "x", "generator_params.side": 3})


def test_wordnet_ids_become_words_before_they_become_prompts(tmp_path: Path) -> None:
    ids, words = ("n01440764", "n02012849", "my_cat"), ("tench", "crane bird", "my cat")
    said = plain_words(ids, ("a photo of a {}.", "{}!")).prompts
    assert said == plain_words(words, ("a photo of a {}.", "{}!")).prompts
    assert said[0][0] == "a photo of a tench."
    clip = str(
        make_clip(tmp_path / "clip", prompts=plain_words(words, ("a photo of a {}.",)).prompts)
    )
    pixels = next(make_dataset(4).batches(4)).images.float() / 255
    judged = [oracles.get("zero_shot")(Setting(names), model=clip).judge(pixels)
              for names in (ids, words)]  # fmt: skip
    assert torch.equal(*judged)
    # Told of two and of one rival of the model under test: the same shares, the rival's last.
    two = Setting(ids[:2], offered="model", rivals=ids[2:])
    assert torch.equal(oracles.get("zero_shot")(two, model=clip).judge(pixels), judged[0])


def test_a_default_generator_says_where_it_was_not_trained() -> None:
    seen = upbringing_of("small-vqgan")
    assert seen is not None
    # The data of the zoo's card, with the largest side of each.
    assert seen.sides == {
        "icons": 64, "cifar10": 32, "fashion_mnist": 32, "mnist": 32, "quickdraw": 32,
    }  # fmt: skip
    maker = generators.get("vqgan")()
    # Where it was trained nobody asks how well it gives images back, which takes a pass.
    assert generator_notes(maker, "icons", ImageSize(64, 64), lambda: 1 / 0) == []
    (note,) = generator_notes(maker, "imagenet", ImageSize(224, 224), lambda: 21.04)
    assert "small-vqgan has not learned from pictures like these (imagenet, 224x224 px)" in note
    assert "21.0 dB" in note
    assert "generator_params.autoencoder" in note
    assert len(generator_notes(maker, "icons", ImageSize(224, 224), lambda: 30.0)) == 1
    colour, size = generators.get("colour")(), ImageSize(99, 99)
    assert generator_notes(colour, "imagenet", size, lambda: 99) == []
    assert "at only 17.0 dB" in generator_notes(colour, "imagenet", size, lambda: 17)[0]


def test_a_default_oracle_that_does_not_know_the_classes_says_so() -> None:
    data = replace(make_dataset(8), name="my-photos")
    params = {"generator": "colour", "budget": 1, "pictures": 0}
    result = measure(make_classifier(ReadsLabel(4)), {"dynamic": params}, data=data)[0]
    share = 100 * result.score("coverage").value
    (note,) = [note for note in result.notes if "no oracle of the zoo" in note]
    assert f"is right about {share:.1f} % of the images as they are (chance: 25.0 %)" in note
    assert "zero_shot(clip-base)" in note
