"""Our attacks against the recorded results of torchattacks and AutoAttack, image by image."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oracles import autoattack_versions as versions
from oracles.attack_reference import EPS, RECORDED, load_images, load_model, recorded
from stockpot.attack.run import attack

SETTINGS = {
    "apgd-ce": {"method": "apgd", "steps": 20, "loss": "ce"},
    "apgd-dlr": {"method": "apgd", "steps": 20, "loss": "dlr"},
    "apgd-t": {"method": "apgd", "steps": 20, "loss": "dlr_targeted", "targets": 3},
    "apgd-multi": {"method": "apgd", "steps": 20, "loss": "ce", "radii": "multi"},
    "fab-t": {"method": "fab", "steps": 20, "targets": 3},
    "square": {"method": "square", "steps": 300},
}
COUNT = 50
# Among so many images. Random starts move a peer by a few images from seed to seed; a random search
# from a different stream of numbers moves more.
SLACK = {"square": 3}
CASES = sorted({tuple(key.split("/")[1:]) for key in recorded()})


@pytest.mark.parametrize(("name", "model", "norm"), CASES)
def test_as_strong_as_the_peers(name: str, model: str, norm: str) -> None:
    images, labels = load_images(COUNT)
    ours = attack(load_model(model), images, labels, norm=norm, eps=EPS[norm], **SETTINGS[name])
    standing = ours.robust.numpy()
    slack = SLACK.get(name, 1)
    for key, masks in recorded().items():
        peer, *case = key.split("/")
        if tuple(case) != (name, model, norm):
            continue
        masks = masks[:, :COUNT]
        counts = masks.sum(axis=1)
        found = int(standing.sum())
        assert counts.min() - slack <= found <= counts.max() + slack, (peer, counts, found)
        # Not only the number but the images: they differ no more than the peer's own seeds plus
        # what a search with other numbers may.
        common = masks.all(axis=0) | ~masks.any(axis=0)
        differing = int((standing != masks[0])[common].sum())
        assert differing <= slack + 2, (peer, differing)


def test_the_decisions_are_the_models() -> None:
    images, labels = load_images(RECORDED)
    model = load_model("robust")
    result = attack(model, images, labels, steps=10)
    with torch.no_grad():
        right = (model(result.images).argmax(dim=1) == labels).numpy()
    assert np.array_equal(right & result.correct.numpy(), result.robust.numpy())


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_walks_that_stop_early_find_what_whole_walks_find(norm: str) -> None:
    model, (images, labels) = load_model("robust"), load_images(30)
    ask = {"norm": norm, "eps": EPS[norm], "method": "fab", "steps": 60, "targets": 2}
    whole = attack(model, images, labels, check=False, **ask)
    early = attack(model, images, labels, check=False, patience=20, **ask)
    assert abs(int(whole.robust.sum()) - int(early.robust.sum())) <= 1
    assert early.queries.sum() < 0.6 * whole.queries.sum()


@pytest.mark.parametrize(("version", "norm"), versions.CASES)
def test_every_version_of_autoattack_is_the_authors(version: str, norm: str) -> None:
    images, labels = load_images(versions.COUNT)
    ours = attack(
        load_model("robust"), images, labels, norm=norm, eps=EPS[norm], method="autoattack",
        version=version, steps=versions.STEPS, queries=versions.QUERIES, targets=versions.TARGETS,
        eot=1, check=False,
    )  # fmt: skip
    theirs = versions.recorded(version, norm)
    assert list(ours.stages) == list(theirs)
    for part, standing in theirs.items():
        counts = standing.sum(axis=1)
        found = int(ours.stages[part].sum())
        assert counts.min() - 1 <= found <= counts.max() + 1, (part, counts, found)
