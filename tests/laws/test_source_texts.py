"""A text means the same source to every function, and one that means nothing gets one line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import stockpot
from pico import CLASSES, ReadsLabel, make_classifier, make_dataset
from stockpot.checkpoints.member_names import member_names
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.resolve import Resolved, resolve, source_text, zoo_folder, zoo_names
from stockpot.cli.options import named
from stockpot.dynamic.oracle import Setting
from stockpot.dynamic.oracles import oracles
from stockpot.errors import UserError
from stockpot.models.autoencoder.files import load_autoencoder
from stockpot.models.classifier import Classifier
from stockpot.models.fingerprint import fingerprint_folder
from stockpot.models.load import Vocabulary, identify, load_for, load_model

State = dict[str, Tensor]
ZOO = "icons-nominal"
DATA = stockpot.load_dataset("icons", limit=4)


def _state(model: torch.nn.Module) -> State:
    return {name.removeprefix("network.model."): t for name, t in model.state_dict().items()}


def _harden(source: str | Path) -> State:
    return _state(stockpot.harden("nominal", source, DATA, epochs=0))


def _season(source: str | Path) -> State:
    return _state(stockpot.season("uniform", [source], DATA, shots=2).model)


def _oracle(source: str | Path) -> State:
    setting = Setting(DATA.classes, DATA.templates)
    judge = oracles.get("classifier")(setting, model=str(source))
    return {k.removeprefix("model."): v for k, v in judge.networks[0].state_dict().items()}


WEIGHTS: dict[str, Callable[[str | Path], State]] = {
    "fuse": lambda source: stockpot.fuse("average", [source]),
    "fuse base": lambda source: stockpot.fuse("task_arithmetic", [source], base=source, scale=0.0),
}
MODELS: dict[str, Callable[[str | Path], State]] = {
    "load_model": lambda source: _state(load_model(source)),
    "load_for": lambda source: _state(load_for(source, DATA)),
    "kept": lambda source: _state(load_for(source, DATA, keep=True)),
    "harden": _harden,
    "season": _season,
    "oracle": _oracle,
}
EVERYTHING = WEIGHTS | MODELS


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str | Path]:
    """Every way to write one model that all functions take."""
    folder = zoo_folder(ZOO)
    assert folder is not None
    shutil.copytree(folder, tmp_path / "mine" / "copy")
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    return {
        "zoo": ZOO,
        "zoo:": f"zoo:{ZOO}",
        "folder": str(tmp_path / "mine" / "copy"),
        "relative": "copy",
        "dotted": "./copy",
        "slash": "copy/",
        "home": "~/mine/copy",
        "path": Path("copy"),
    }


@pytest.mark.parametrize("what", EVERYTHING)
def test_a_source_is_the_same_weights_to_everyone(what: str, texts: dict[str, str | Path]) -> None:
    source = open_checkpoint(ZOO)
    expected = {name: source.read(name).float() for name in source.tensors()}
    for text in texts.values():
        found = {name: tensor.float() for name, tensor in EVERYTHING[what](text).items()}
        assert expected.keys() <= found.keys(), text
        for name, tensor in expected.items():
            assert torch.equal(found[name], tensor), (text, name)


def test_measure_and_similarity_take_the_same_texts(texts: dict[str, str | Path]) -> None:
    results = stockpot.measure(list(texts.values()), "clean", data=DATA)
    assert {result.key.model_fingerprint for result in results} == {identify(ZOO)}
    assert len({result.key.model for result in results}) == len(texts)
    lengths = [stockpot.similarity("icons-linf", [text]).norms for text in texts.values()]
    assert float(lengths[0]) > 0
    assert all(torch.equal(length, lengths[0]) for length in lengths)


def test_similarity_of_zoo_models_in_python() -> None:
    found = stockpot.similarity("clip-base", ["clip-cifar10", "zoo:clip-icons"])
    assert found.names == ("clip-cifar10", "clip-icons")
    assert found.cosine.shape == (2, 2)


@pytest.mark.parametrize("what", EVERYTHING)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("icons-nominl", "Did you mean icons-nominal"),
        ("zoo:icons-nominl", "Did you mean icons-nominal"),
        ("./cop", "Did you mean copy"),
        ("a/b/c/d", "Expected a zoo model"),
        ("", "Expected a zoo model"),
        ("nobody/nothing-here", "the hub could not give it"),
    ],
)
def test_a_text_that_means_nothing_gets_one_line(
    what: str, text: str, words: str, texts: dict[str, str | Path]
) -> None:
    with pytest.raises(UserError, match=words) as caught:
        EVERYTHING[what](text)
    assert "\n" not in str(caught.value)


def test_files_are_for_weights_and_factories_for_models(texts: dict[str, str | Path]) -> None:
    file = "copy/model.safetensors"
    expected = stockpot.fuse("average", [ZOO])
    found = stockpot.fuse("average", [file])
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    for call in MODELS.values():
        with pytest.raises(UserError, match=r"without an architecture\. Give its folder: copy"):
            call(file)
    for text in ("nets.py:make", "package.nets:make"):
        for call in WEIGHTS.values():
            with pytest.raises(
                UserError, match=r"expected a zoo model.*Save its weights"
            ) as caught:
                call(text)
            assert "\n" not in str(caught.value)


def test_the_zoo_means_the_zoo_and_a_path_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pico_vit: Path
) -> None:
    shutil.copytree(pico_vit, tmp_path / ZOO)
    monkeypatch.chdir(tmp_path)
    zoo, own = fingerprint_folder(zoo_folder(ZOO) or Path()), fingerprint_folder(pico_vit)
    assert identify(ZOO) == identify(f"zoo:{ZOO}") == zoo
    assert identify(f"./{ZOO}") == identify(Path(ZOO)) == identify(source_text(Path(ZOO))) == own


def test_generators_follow_the_same_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = zoo_folder("small-vqgan", "autoencoder")
    assert folder is not None
    assert zoo_names("autoencoder") == ["small-vqgan"]
    shutil.copytree(folder, tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    expected = load_autoencoder("small-vqgan").state_dict()
    for text in ("zoo:small-vqgan", "mine", "./mine", Path("mine")):
        found = load_autoencoder(text).state_dict()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    with pytest.raises(UserError, match="Did you mean small-vqgan"):
        load_autoencoder("smal-vqgan")


def test_revisions_belong_to_hub_ids() -> None:
    assert resolve("org/name@v1").revision == resolve("org/name", revision="v1").revision == "v1"
    assert resolve("org/name@v1").lasting == "org/name@v1"
    with pytest.raises(UserError, match="only a hub id has a revision"):
        load_model(ZOO, revision="v1")
    with pytest.raises(UserError, match="two revisions"):
        resolve("org/name@v1", revision="v2")


def test_a_kept_model_is_loaded_anew_when_its_folder_changed(
    tmp_path: Path, pico_vit: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(pico_vit, folder)
    data = make_dataset()
    before = load_for(folder, data, keep=True)
    assert load_for(folder, data, keep=True) is before
    other = load_model(folder)
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    other.save(folder)
    after = load_for(folder, data, keep=True)
    assert torch.equal(next(after.parameters()), next(other.parameters()))


def test_only_the_head_of_a_kept_dual_encoder_changes() -> None:
    first = load_for("clip-base", Vocabulary(CLASSES), keep=True)
    second = load_for("clip-base", Vocabulary(("ant", "bee")), keep=True)
    assert first.network.model is second.network.model
    assert (len(first.classes), second.classes) == (4, ("ant", "bee"))


@pytest.mark.parametrize(
    ("members", "names"),
    [
        (["zoo:a", "runs/b/", "org/c@v1", "d.safetensors"], ["a", "b", "c@v1", "d"]),
        (["x/a/model.pt", "x/b/model.pt"], ["a-model", "b-model"]),
        (["p/q/m", "r/q/m", "m"], ["p-q-m", "r-q-m", "m"]),
        (["m", "m", {}, "m"], ["m", "m-2", "member-3", "m-3"]),
        (["runs/base"], ["runs-base"]),
        (["A/m", "b/M"], ["A-m", "b-M"]),
        (["timm:vit", "open_clip:ViT/x", "a.py:make"], ["vit", "ViT-x", "a.py-make"]),
        (["runs/sweep/scale=0.2", "we ird/na:me"], ["scale=0.2", "na-me"]),
    ],
)  # fmt: skip
def test_members_are_named_by_one_rule(members: list[object], names: list[str]) -> None:
    found = member_names(members, taken=("base",))
    assert found == names
    assert len({name.casefold() for name in found}) == len(found)
    assert not any(set(name) & set('/\\:*?"<>| ') for name in found)


def test_a_member_called_base_does_not_take_the_place_of_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(zoo_folder("icons-linf") or Path(), tmp_path / "base")
    expected = stockpot.fuse("wise_ft", ["icons-linf"], base=ZOO, alpha=0.5)
    found = stockpot.fuse("wise_ft", ["base"], base=ZOO, alpha=0.5)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_sign_in_a_path_names_nothing() -> None:
    points = ["runs/sweep/scale=0.2", "./scale=0.4"]
    assert named(points, "model") == points
    assert named(["a=runs/scale=0.2"], "model") == {"a": "runs/scale=0.2"}


def test_open_clip_models_are_identified_without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(place: Resolved, *, classes: tuple[str, ...] | None = None) -> Classifier:
        assert classes, "a dual encoder cannot be loaded without classes"
        return make_classifier(ReadsLabel(4))

    monkeypatch.setattr("stockpot.models.extras.load_open_clip", load)
    assert identify("open_clip:ViT-B-32/x") == make_classifier(ReadsLabel(4)).origin.fingerprint
