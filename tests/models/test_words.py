"""Which words a text tower is told: a user's, then those beside the model, then the customary."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import stockpot
from commands import invoke
from dual_encoders import make_clip, make_expert
from pico import make_dataset
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.natural.classes import imagenet_names, subset
from stockpot.datasets.natural.imagenet_subsets import RENDITION
from stockpot.datasets.natural.public import spoken
from stockpot.datasets.words.conventions import clip_words, words_of
from stockpot.datasets.words.words import Words
from stockpot.errors import BadCheckpointError, BadParameterError, UserError
from stockpot.fuse.run import fuse
from stockpot.harden.run import harden
from stockpot.measure.run import measure
from stockpot.models.load import Vocabulary, load_for, load_model, words_for

OWN = {"templates": ["one {}."]}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clip(tmp_path_factory.mktemp("clip") / "base")


@pytest.fixture
def taught(clip: Path, tmp_path: Path) -> Path:
    """The same CLIP with words of its own for the classes of the toy data."""
    folder = make_clip(tmp_path / "taught")
    entry = {"classes": make_dataset().classes, **OWN}
    (folder / "words.json").write_text(json.dumps([entry]))
    return folder


def head(source: Path, data: Dataset, **options: object) -> torch.Tensor:
    return load_for(source, data, options=options).state_dict()["network.head"]


def test_clips_words_for_imagenet_are_those_of_open_clip() -> None:
    """The digest is of open_clip 3.3's `IMAGENET_CLASSNAMES` in `OPENAI_IMAGENET_TEMPLATES`."""
    words = clip_words()
    text = json.dumps(words.prompts, ensure_ascii=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest.startswith("442215271a1dd5c5d4ce00528f916eac")
    assert (len(words.names), len(words.templates)) == (1000, 80)
    assert words.names[134] == "crane bird"
    assert words.prompts[0][0] == "a bad photo of a tench."
    # Every set of these classes is spoken of so: under its own name, as a plain folder, in part.
    assert words_of(Vocabulary(imagenet_names())) == words
    part = spoken(RENDITION)
    assert part.names == tuple(words.names[place] for place in subset("r"))


def test_a_head_is_made_of_the_words_exactly(clip: Path) -> None:
    data = make_dataset()
    names = tuple(f"the_{name}" for name in data.classes)
    told = replace(data, vocabulary=Words(names, ("a {}, {}!",), "fusionbench"))
    prompts = tuple((f"a {name}, {name}!",) for name in names)
    wanted = load_model(clip, classes=data.classes, prompts=prompts).state_dict()["network.head"]
    assert torch.equal(head(clip, told), wanted)
    assert torch.equal(load_for(clip, told, keep=True).state_dict()["network.head"], wanted)
    assert not torch.allclose(head(clip, data), wanted)


def test_a_models_own_words_win_over_the_customary_and_lose_to_a_users(
    taught: Path, tmp_path: Path
) -> None:
    data = make_dataset()
    customary = replace(data, vocabulary=Words(data.classes, ("two {}.",), "fusionbench"))
    expert = make_expert(taught, tmp_path / "expert", seed=1)
    other = make_expert(taught, tmp_path / "other", seed=2)
    fused = fuse("task_arithmetic", [expert, other], base=taught, out=tmp_path / "fused")
    for model in (taught, expert, fused):
        words = words_for(model, customary)
        assert words is not None
        assert (words.convention, words.templates) == ("model", ("one {}.",))
        chosen = replace(customary, vocabulary=replace(customary.vocabulary, chosen=True))
        assert words_for(model, chosen) == chosen.vocabulary
        given = words_for(model, customary, {"templates": ["three {}."]})
        assert given is not None
        assert (given.convention, given.templates) == ("given", ("three {}.",))
    assert words_for(taught, Vocabulary(("ant", "bee"))) == words_of(Vocabulary(("ant", "bee")))
    (taught / "words.json").write_text("[1]")
    with pytest.raises(BadCheckpointError, match=r"words\.json: expected a list"):
        words_for(taught, data)


def test_the_zoos_experts_are_told_what_they_were_trained_with(little_sets: Path) -> None:
    said = {
        "cifar10": "a low resolution photo of a {}.",
        "mnist": "a handwritten digit {}.",
        "fashion_mnist": "a greyscale picture of a {}.",
    }
    for name, template in said.items():
        data = load_dataset(name)
        for model in ("clip-base", "clip-cifar10", "clip-icons"):
            words = words_for(model, data)
            assert words is not None
            assert words.names == data.classes
            assert words.templates[-1] == template
        customary = words_for("clip-base", load_dataset(name, words="fusionbench"))
        assert customary is not None
        assert customary.convention == "fusionbench"


def test_words_in_files(toy_file: Path, tmp_path: Path) -> None:
    classes = load_dataset(str(toy_file)).classes
    names, sentences = tmp_path / "names.txt", tmp_path / "templates.json"
    names.write_text("\n".join(f"kind {name}" for name in classes) + "\n\n")
    sentences.write_text('["see {}", "a {}"]')
    data = load_dataset(str(toy_file), classnames=str(names), templates=str(sentences))
    assert words_of(data).prompts[0] == (f"see kind {classes[0]}", f"a kind {classes[0]}")
    assert data.classes == classes
    listed = load_dataset(str(toy_file), classnames=list(classes), templates=["see {}", "a {}"])
    assert words_of(listed).templates == ("see {}", "a {}")
    names.write_text("only one\n")
    wrong = {
        f"expected {len(classes)}, one for each class": {"classnames": str(names)},
        "one entry a line, or a JSON list, at .*nowhere": {"templates": "nowhere.txt"},
        "a {} for the class name": {"templates": str(names)},
        "list of texts": {"templates": [1]},
        "words: expected data": {"words": "fusionbench"},
    }
    for message, given in wrong.items():
        with pytest.raises(BadParameterError, match=message):
            load_dataset(str(toy_file), **given)


def test_the_result_names_the_words_and_other_words_are_another_question(
    clip: Path, toy_file: Path, tmp_path: Path
) -> None:
    sentences = tmp_path / "templates.txt"
    sentences.write_text("see {}\n")
    plain, given = (
        measure(clip, "clean", data=str(toy_file), data_options=options, out=tmp_path / "run")[0]
        for options in ({}, {"templates": str(sentences)})
    )
    data = load_dataset(str(toy_file), templates=str(sentences))
    assert plain.key.words.startswith("data:")
    assert given.key.words == f"given:{words_of(data).digest[:12]}"
    assert len(list((tmp_path / "run" / "results").iterdir())) == 2
    done = invoke(
        "measure", clip, "--data", toy_file, "-d", f"templates={sentences}", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert given.key.words in done.output


def test_a_recipe_gives_words(clip: Path, toy_file: Path, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('["see {}"]')
    recipe: dict[str, Any] = {
        "version": 1,
        "data": {"toys": {"dataset": str(toy_file), "templates": str(tmp_path / "t.json")}},
        "models": {"clip": {"load": str(clip)}},
        "measure": {"with": [{"measure": "clean", "data": "toys"}]},
    }
    (cell,) = stockpot.run(recipe, out=tmp_path / "run").results
    assert cell.key.words.startswith("given:")
    recipe["data"]["toys"]["templates"] = "nowhere.txt"
    with pytest.raises(UserError, match=r"templates: .*a text file.*nowhere\.txt"):
        stockpot.run(recipe, out=tmp_path / "other")


def test_a_model_keeps_the_words_that_a_user_trained_it_with(clip: Path, tmp_path: Path) -> None:
    data = make_dataset()
    given = replace(data, vocabulary=Words(data.classes, ("see {}",), "given", chosen=True))
    for name, asked, kept in (("given", given, ("see {}",)), ("plain", data, data.templates)):
        harden("nominal", clip, asked, out=tmp_path / name, epochs=0)
        words = words_for(tmp_path / name, data)
        assert words is not None
        assert words.templates == kept


def test_templates_in_a_file_are_those_in_a_list_whoever_names_the_classes(
    clip: Path, tmp_path: Path
) -> None:
    sentences, names = ["a drawing of a {}.", "the {}."], ("ant", "bee")
    (tmp_path / "said.txt").write_text("\n".join(sentences), encoding="utf-8")
    file, pixels = str(tmp_path / "said.txt"), torch.rand(2, 3, 32, 32)
    told = load_model(clip, classes=names, templates=sentences)
    with torch.no_grad():
        found = load_model(clip, classes=names, templates=file)(pixels)
        assert torch.equal(found, told(pixels))
