"""Adversarial images on the disk: kept, read back, scored again, and refused where they lie."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import stockpot
from attack.test_attack import linear, pictures
from commands import invoke
from pico import make_classifier, make_dataset
from stockpot.attack.run import attack
from stockpot.attack.saved_images import load_images, save_images
from stockpot.attack.threat import L1, L2, Linf
from stockpot.errors import UserError
from stockpot.files import write_atomic
from stockpot.models.load import identify


def reader(seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(768, 4)
    layer.weight.data = torch.randn(4, 768, generator=generator) / 8
    layer.bias.data.zero_()
    return nn.Sequential(nn.Flatten(), layer)


def test_what_is_saved_comes_back(tmp_path) -> None:
    model, images = linear(3), pictures(6)
    labels = model(images).argmax(dim=1)
    found = {
        ball: attack(model, images, labels, norm=ball.norm, eps=ball.eps, steps=3).images
        for ball in (Linf("8/255"), L2(0.5))
    }
    save_images(tmp_path / "found", found, images, labels, {"model": "m", "seed": 3})
    again = load_images(tmp_path / "found")
    assert list(again.images) == list(found)
    for ball, pixels in found.items():
        assert torch.equal(again.images[ball], pixels)
        assert again.images[ball].dtype == torch.float32
    assert torch.equal(again.originals, images)
    assert torch.equal(again.labels, labels)
    assert (again.manifest["model"], again.manifest["seed"]) == ("m", 3)
    # Anyone can read the file: plain float32 pixels under the manifest's names.
    plain = load_file(tmp_path / "found" / "images.safetensors")
    named = {each["tensor"]: each["eps"] for each in again.manifest["threats"]}
    assert named == {"adversarial.0": "8/255", "adversarial.1": "0.5"}
    assert torch.equal(plain["adversarial.1"], found[L2(0.5)])
    with pytest.raises(UserError, match="exists already"):
        save_images(tmp_path / "found", found, images, labels, {})


def test_eight_bit_originals_stay_eight_bits(tmp_path) -> None:
    originals = torch.randint(0, 256, (2, 3, 4, 4), generator=torch.Generator().manual_seed(0))
    originals = originals.to(torch.uint8)
    moved = (originals.float() / 255 + 0.01).clamp(max=1)
    for each, given in (("a", originals), ("b", originals.float() / 255)):
        save_images(tmp_path / each, {Linf(0.01): moved}, given, torch.zeros(2), {})
        stored = load_file(tmp_path / each / "images.safetensors")["original"]
        assert torch.equal(stored, originals)


def forge(folder, change) -> None:
    """Change the tensors, and the manifest so that it fits them."""
    path = folder / "images.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    write_atomic(folder / "manifest.json", json.dumps(manifest))


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_images_outside_the_ball_are_refused(norm, tmp_path) -> None:
    images = pictures(4)
    ball = {"linf": Linf("8/255"), "l2": L2(0.25), "l1": L1(2)}[norm]
    step = torch.zeros_like(images)
    step[2, 0, 0, 0] = {"linf": 8 / 255, "l2": 0.25, "l1": 0.3}[norm]
    if norm == "l1":
        step[2, :, 1] = 1.7 / 12
    save_images(tmp_path / "a", {ball: images + step}, images, torch.zeros(4), {})
    load_images(tmp_path / "a")  # on the edge is inside

    def beyond(tensors) -> None:
        tensors["adversarial.0"] = images + 1.01 * step

    forge(tmp_path / "a", beyond)
    with pytest.raises(UserError, match=r"1 of 4 images lie outside the ball .*: image 2 is"):
        load_images(tmp_path / "a")
    with pytest.raises(UserError, match="outside the ball"):
        save_images(tmp_path / "b", {ball: images + 1.01 * step}, images, torch.zeros(4), {})
    assert not (tmp_path / "b").exists()


def test_what_is_no_picture_is_refused(tmp_path) -> None:
    images = pictures(2)
    save_images(tmp_path / "a", {Linf(1): images}, images, torch.zeros(2), {})

    def broken(tensors) -> None:
        tensors["adversarial.0"][0, 0, 0, 0] = torch.nan

    forge(tmp_path / "a", broken)
    with pytest.raises(UserError, match="no pixels in"):
        load_images(tmp_path / "a")
    (tmp_path / "a" / "images.safetensors").write_bytes(b"something else")
    with pytest.raises(UserError, match="not the file that its manifest was written for"):
        load_images(tmp_path / "a")
    with pytest.raises(UserError, match="holds no saved adversarial images"):
        load_images(tmp_path)


def test_they_are_scored_again_on_any_model(tmp_path) -> None:
    data, folder = make_dataset(), tmp_path / "found"
    model, other = make_classifier(reader()), make_classifier(reader(1))
    ask = {"norms": "linf,l2", "eps": "1/255,0.1", "method": "apgd", "steps": 4}
    (first,) = stockpot.measure(
        {"m": model}, {"adversarial": ask | {"save": str(folder)}}, data=data, seed=2, device="cpu"
    )
    assert json.loads((folder / "manifest.json").read_text())["weights_fingerprint"] == identify(
        model
    )
    again, transferred = stockpot.measure(
        {"m": model, "other": other},
        {"adversarial": {"images": str(folder)}},
        data=data,
        device="cpu",
    )
    for name in first.outcomes:
        assert np.array_equal(again.outcome(name), first.outcome(name)), name
    assert [s.condition for s in again.scores] == [s.condition for s in first.scores]
    assert "found on toy-model by adversarial:custom; method=apgd, steps=4" in again.convention
    assert "seed 2" in again.convention
    saved = load_images(folder)
    with torch.no_grad():
        right = [other(pixels).argmax(1) == data.labels for pixels in saved.images.values()]
        clean = other(saved.originals).argmax(1) == data.labels
    assert (
        transferred.score("union_accuracy").value == float((right[0] & right[1] & clean).sum()) / 40
    )
    assert any("only transfer" in note for note in transferred.notes)
    assert not any("only transfer" in note for note in again.notes)
    with pytest.raises(UserError, match="made from other images"):
        stockpot.measure(model, {"adversarial": {"images": str(folder)}}, data=make_dataset(20))
    both = {"images": str(folder), "steps": 3}
    with pytest.raises(UserError, match="leave the attack's parameters out"):
        stockpot.measure(model, {"adversarial": both}, data=data)

    def other_originals(tensors) -> None:
        tensors["original"] = tensors["original"].flip(0)
        for name in ("adversarial.0", "adversarial.1"):
            tensors[name] = tensors["original"].float() / 255

    forge(folder, other_originals)
    with pytest.raises(UserError, match="originals are not the images of the data"):
        stockpot.measure(model, {"adversarial": {"images": str(folder)}}, data=data)


def test_the_command_attacks_saves_and_scores(pico_vit, toy_file, tmp_path) -> None:
    common = [pico_vit, "--data", toy_file, "--limit", 12]
    done = invoke("attack", *common, "--eps", "2/255", "-p", "steps=2", "--save", tmp_path / "a")
    assert done.exit_code == 0, done.output
    assert "robust linf 2/255" in done.output
    again = invoke("attack", *common, "--images", tmp_path / "a", "--json")
    result = json.loads(again.output)
    assert result["convention"].startswith("adversarial:saved images; found on ")
    # Before an hour is spent on it.
    taken = invoke("attack", *common, "--save", tmp_path / "a")
    assert taken.exit_code == 1
    assert "exists already" in taken.output


@pytest.mark.parametrize(
    ("words", "convention"),
    [
        ([], "adversarial:custom; method=apgd; pixels in [0, 1]"),
        (
            ["--protocol", "robustbench", "-p", "queries=2", "-p", "steps=1"],
            "adversarial:robustbench (changed); method=autoattack, steps=1, queries=2; "
            "pixels in [0, 1]",
        ),
        (
            ["--method", "autoattack", "-p", "version=rand", "-p", "eot=2", "-p", "steps=1"],
            "adversarial:custom; method=autoattack, steps=1, version=rand, eot=2; pixels in [0, 1]",
        ),
        (
            ["--method", "autoattack", "-p", "attacks=square,apgd-t", "-p", "targets=2",
             "-p", "steps=1", "-p", "queries=3"],
            "adversarial:custom; method=autoattack, steps=1, targets=2, attacks=square+apgd-t, "
            "queries=3; pixels in [0, 1]",
        ),
        (
            ["--norm", "l2", "--eps", "0.25", "-p", "loss=dlr_targeted", "-p", "targets=1",
             "-p", "steps=1"],
            "adversarial:custom; method=apgd, steps=1, loss=dlr_targeted, targets=1; "
            "pixels in [0, 1]",
        ),
    ],
)  # fmt: skip
def test_every_setting_is_reached_and_named(words, convention, pico_vit, toy_file) -> None:
    done = invoke("attack", pico_vit, "--data", toy_file, "--limit", 3, *words, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["convention"] == convention


def test_settings_that_an_attack_has_not_are_refused(pico_vit, toy_file) -> None:
    for words, message in {
        ("-p", "queries=3"): "apgd: unknown parameter 'queries'",
        ("--method", "autoattack", "-p", "attacks=apgd-cee"): "Did you mean apgd-ce",
        ("--method", "square", "-p", "loss=ce"): "square: unknown parameter 'loss'",
        ("--protocol", "robustbench", "-p", "version=stronger"): "version",
    }.items():
        done = invoke("attack", pico_vit, "--data", toy_file, "--limit", 3, *words)
        assert done.exit_code == 1
        assert message in done.output, done.output
