"""Contrastive training of dual encoders, and the captioned data it is made for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers as hf

from dual_encoders import make_clip
from pico import CLASSES, make_classifier, make_dataset
from stockpot.datasets.captions.phrases import KINDS
from stockpot.datasets.load import load_dataset
from stockpot.datasets.named.cifar10 import CIFAR10
from stockpot.datasets.named.fashion_mnist import FASHION_MNIST
from stockpot.datasets.named.mnist import MNIST
from stockpot.errors import BadParameterError, UserError
from stockpot.harden.contrastive import contrastive_loss, match
from stockpot.harden.run import harden
from stockpot.models.load import load_model


def unit(n: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(n, 8, generator=generator), dim=1)


def test_with_one_caption_each_it_is_the_loss_of_clip() -> None:
    from transformers.models.clip.modeling_clip import image_text_contrastive_loss

    images, texts, scale = unit(6, 0), unit(6, 1), torch.tensor(14.0)
    ours = contrastive_loss(images, texts, scale, torch.eye(6, dtype=torch.bool))
    torch.testing.assert_close(ours, image_text_contrastive_loss(scale * texts @ images.T))


def test_pictures_of_one_class_are_no_negatives() -> None:
    texts = unit(4, 1)[[0, 0, 2, 2]]
    labels = torch.tensor([0, 0, 1, 1])
    perfect = contrastive_loss(texts, texts, torch.tensor(100.0), match(labels))
    assert float(perfect) == pytest.approx(torch.log(torch.tensor(2.0)).item(), abs=1e-3)


def test_both_towers_learn_and_the_folder_is_whole(tmp_path: Path) -> None:
    base = make_clip(tmp_path / "base")
    data = make_dataset(32)
    seen: list[float] = []
    harden(
        "contrastive",
        base,
        data,
        out=tmp_path / "trained",
        epochs=12,
        batch_size=16,
        lr=0.01,
        augmentations=(),
        report=lambda step, total, found: seen.append(found["loss"]),
    )
    assert seen[-1] < seen[0] - 0.2
    start, end = (hf.CLIPModel.from_pretrained(tmp_path / n) for n in ("base", "trained"))
    for part in ("text_model", "vision_model"):
        pairs = zip(getattr(start, part).parameters(), getattr(end, part).parameters(), strict=True)
        assert any(not torch.equal(a, b) for a, b in pairs)
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "trained")
    text = "a photo of a weasel, 12 %!"
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True).strip() == text
    assert load_model(tmp_path / "trained", classes=CLASSES).classes == CLASSES


def test_no_steps_change_nothing(tmp_path: Path) -> None:
    base = make_clip(tmp_path / "base")
    harden("contrastive", base, make_dataset(8), out=tmp_path / "same", epochs=0)
    start, end = (hf.CLIPModel.from_pretrained(tmp_path / n) for n in ("base", "same"))
    for name, tensor in start.state_dict().items():
        assert torch.equal(tensor, end.state_dict()[name])


def test_a_plain_classifier_has_no_text_tower() -> None:
    model = make_classifier(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4)))
    with pytest.raises(UserError, match="no dual encoder"):
        harden("contrastive", model, make_dataset(8), epochs=1)


def test_captions_come_from_training_images_of_the_shares_asked_for() -> None:
    only = {"cifar10": 0.0, "quickdraw": 0.0, "mnist": 0.0, "fashion_mnist": 0.0}
    data = load_dataset("captions", split="train", icons=0.05, size=32, **only)
    train = load_dataset("icons", split="train")
    assert len(data) == round(0.05 * len(train))
    concepts = set(train.columns["concept"])
    assert all(name.removeprefix("icon: ") in concepts for name in data.classes)
    assert not concepts & set(load_dataset("icons", split="test").columns["concept"])
    assert len(data.prompts) == len(data.classes)
    assert all(name.partition(": ")[2] in said[0] for name, said in zip(
        data.classes, data.prompts, strict=True))  # fmt: skip
    with pytest.raises(BadParameterError, match="share of 0 to 1"):
        load_dataset("captions", split="train", icons=1.5)
    with pytest.raises(BadParameterError, match="split: input should be 'train'"):
        load_dataset("captions", split="test")


def test_captions_of_unnamed_icons_do_not_tell_the_class() -> None:
    only = {"cifar10": 0, "quickdraw": 0, "mnist": 0, "fashion_mnist": 0, "size": 16}
    data = load_dataset("captions", split="train", icons=0.02, concepts=0.05, **only)
    icons = load_dataset("icons", split="train")
    assert len(data) == round(0.02 * len(icons)) + round(0.05 * len(icons))
    kinds = {f"an icon of a {name}." for name in icons.classes}
    concepts = {f"an icon of a {name}." for name in icons.columns["concept"]}
    for name, said in zip(data.classes, data.prompts, strict=True):
        tells = bool(set(said) & (kinds - concepts))
        if name.startswith("icon of a concept"):
            assert not tells, name
        else:
            assert tells or set(said) & kinds, name


@pytest.mark.parametrize("source", ["cifar10", "mnist", "fashion_mnist"])
def test_the_kinds_of_a_source_share_out_its_classes(source: str) -> None:
    classes = {"cifar10": CIFAR10, "mnist": MNIST, "fashion_mnist": FASHION_MNIST}[source].classes
    assert sorted(name for group in KINDS[source].values() for name in group) == sorted(classes)
    assert not set(KINDS[source]) & set(classes)


def test_the_text_tower_reads_to_the_end(tmp_path: Path) -> None:
    # Two prompts that differ in their last word only: pooled before it they would be the same.
    base = make_clip(tmp_path / "base")
    tokenizer = hf.AutoTokenizer.from_pretrained(base)
    model = hf.CLIPModel.from_pretrained(base)
    tokens = tokenizer(["zoo zoo zoo a", "zoo zoo zoo b"], return_tensors="pt", padding=True)
    hidden = model.text_model(**tokens)
    ends = (tokens["input_ids"] == tokenizer.eos_token_id).int().argmax(dim=1)
    last = hidden.last_hidden_state[torch.arange(2), ends]
    torch.testing.assert_close(hidden.pooler_output, last)
    assert not torch.allclose(last[0], last[1])
