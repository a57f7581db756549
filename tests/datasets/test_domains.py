"""Nine things in three domains: one class space, and every name means the same thing."""

from __future__ import annotations

import pytest
import torch

from stockpot.datasets.composed.domains import ICON_CLASSES, SHARED
from stockpot.datasets.icons.concepts import class_table
from stockpot.datasets.load import load_dataset
from stockpot.datasets.named.cifar10 import CIFAR10
from stockpot.datasets.named.quickdraw import QUICKDRAW
from stockpot.errors import BadParameterError, UnknownNameError, UserError

SHARED_NAMES = tuple(SHARED)


def test_every_shared_name_exists_where_it_is_looked_for() -> None:
    concepts = {
        concept.name for name in ICON_CLASSES for group in class_table()[name] for concept in group
    }
    for name, words in SHARED.items():
        assert name in CIFAR10.classes
        assert set(words.drawings) <= set(QUICKDRAW.classes)
        assert set(words.concepts) <= concepts
    for part in ("drawings", "concepts"):
        used = [word for words in SHARED.values() for word in getattr(words, part)]
        assert len(used) == len(set(used)), "one word stands for two things"


def test_icons_show_every_thing_in_both_splits_and_share_no_family() -> None:
    train, test = (
        load_dataset("domains", split=split, domain="icon") for split in ("train", "test")
    )
    for data in (train, test):
        assert data.classes == tuple(SHARED)
        assert set(data.labels.tolist()) == set(range(len(SHARED)))
        for kind, label in zip(data.columns["kind"], data.labels.tolist(), strict=True):
            assert kind in SHARED[data.classes[label]].concepts
    assert not set(train.columns["family"]) & set(test.columns["family"])
    assert train.fingerprint != test.fingerprint


fetched = pytest.mark.parametrize(
    ("domain", "name"), [("photo", "cifar10"), ("drawing", "quickdraw")]
)


@fetched
@pytest.mark.usefixtures("little_sets")
def test_domains_agree_with_their_source(domain: str, name: str) -> None:
    _check_source(domain, name)


@fetched
@pytest.mark.data
def test_fetched_domains_agree_with_their_source(domain: str, name: str) -> None:
    _check_source(domain, name)


def _check_source(domain: str, name: str) -> None:
    data, source = load_dataset("domains", domain=domain), load_dataset(name)
    words = {
        name: (name,) if domain == "photo" else names.drawings for name, names in SHARED.items()
    }
    for number, thing in enumerate(data.classes):
        chosen = sum(int((source.labels == source.classes.index(w)).sum()) for w in words[thing])
        assert int((data.labels == number).sum()) == chosen
    assert set(data.columns["domain"]) == {domain}


@pytest.mark.usefixtures("little_sets")
def test_a_domain_can_be_held_out_of_all_three() -> None:
    asked = {"domain": "every", "protocol": "style", "hold_out": "icon", "twins": True}
    train, test = (load_dataset("domains", split=side, **asked) for side in ("train", "test"))
    assert set(train.columns["style"]) == {"photo", "drawing"}
    assert set(test.columns["style"]) == {"icon"}
    assert set(test.columns["concept"]) <= set(train.columns["concept"])
    icons = load_dataset("domains", domain="icon")
    assert test.labels.tolist() == [
        label for label in icons.labels.tolist() if SHARED_NAMES[label] in train.columns["concept"]
    ]
    pixels = next(iter(test.batches(4))).images
    assert pixels.shape == (4, 3, 32, 32)


@pytest.mark.parametrize("domain", ["photo", "drawing"])
@pytest.mark.usefixtures("little_sets")
def test_fit_and_val_are_the_parts_of_train(domain: str) -> None:
    _check_parts(domain)


@pytest.mark.data
@pytest.mark.parametrize("domain", ["photo", "drawing"])
def test_fit_and_val_are_the_parts_of_fetched_train(domain: str) -> None:
    _check_parts(domain)


def _check_parts(domain: str) -> None:
    train, fit, val = (
        load_dataset("domains", split=split, domain=domain) for split in ("train", "fit", "val")
    )
    assert len(fit) + len(val) == len(train)
    assert set(val.labels.tolist()) == set(range(len(SHARED)))
    assert torch.equal((fit.labels.bincount() + val.labels.bincount()), train.labels.bincount())


def test_mistakes_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    with pytest.raises(BadParameterError, match=r"'train'.*got 'all'"):
        load_dataset("domains", split="all")
    with pytest.raises(UnknownNameError, match="test, train"):
        load_dataset("domains", split="val", domain="icon")
    with pytest.raises(UserError, match="photo"):
        load_dataset("domains", domain="painting")
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path))
    with pytest.raises(UserError, match="data get cifar10"):
        load_dataset("domains", domain="photo")
