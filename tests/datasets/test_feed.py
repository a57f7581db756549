"""Streamed equals held, bit for bit, and what is alive at a time does not grow with the set."""

from __future__ import annotations

import io
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from PIL import Image

from pico import make_classifier
from season.toys import norm_member, toy_images
from stockpot.datasets import feed
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.encoded import EncodedImages
from stockpot.datasets.feed import Feed
from stockpot.harden.loop import train
from stockpot.harden.nominal import nominal
from stockpot.season.run import season

SIDE = 8
EACH = 3 * SIDE * SIDE


@dataclass(frozen=True)
class Counted:
    """Decodes like its images, and knows how many bytes it has handed out are still alive."""

    images: EncodedImages
    alive: dict[str, int] = field(default_factory=lambda: {"now": 0, "most": 0, "decoded": 0})

    def __len__(self) -> int:
        return len(self.images)

    def take(self, index: Sequence[int]) -> Counted:
        return Counted(self.images.take(index), self.alive)

    def batches(self, size: int, fit) -> Iterator[torch.Tensor]:
        for batch in self.images.batches(size, fit):
            # A view's storage dies with the last view, so the storage is what is watched.
            storage, count = batch.untyped_storage(), batch.nbytes
            self.alive["now"] += count
            self.alive["decoded"] += len(batch)
            self.alive["most"] = max(self.alive["most"], self.alive["now"])
            weakref.finalize(storage, self._gone, count)
            del storage
            yield batch
            del batch

    def _gone(self, count: int) -> None:
        self.alive["now"] -= count


def encoded(n: int = 60) -> Dataset:
    """The toys as PNG files in memory: decoded when they are asked for."""
    data = toy_images(n, norm_member(2), noise=0.3)
    files = []
    for picture in data.images.pixels.permute(0, 2, 3, 1).numpy():
        stream = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(picture)).save(stream, "PNG")
        files.append(stream.getvalue())
    images = EncodedImages(tuple(files), tuple(map(str, range(n))))
    return replace(data, images=Counted(images))


@pytest.mark.parametrize("decoded", [True, False])
def test_streamed_batches_are_the_held_ones(decoded: bool, monkeypatch) -> None:
    data = encoded(23)
    whole = toy_images(23).images.pixels
    images = toy_images(23).images if decoded else data.images
    order = torch.randperm(23, generator=torch.Generator().manual_seed(1))[:17]
    for limit in (0, 23 * EACH):
        monkeypatch.setattr(feed, "RESIDENT", limit)
        # Decoded pictures are held where they lie anyway; only another device streams them.
        device = torch.device("meta" if decoded and not limit else "cpu")
        source = Feed(images, None, device)
        assert (source.held is None) == (limit == 0)
        shapes = [len(batch) for batch in source.batches(5)]
        assert shapes == [5, 5, 5, 5, 3]
        if device.type == "meta":
            continue
        assert torch.equal(torch.cat(list(source.batches(5))), whole)
        assert torch.equal(torch.cat(list(source.batches(5, order))), whole[order])
        assert torch.equal(torch.cat(list(source.take(order).batches(4))), whole[order])
        assert torch.equal(
            torch.cat([batch for block in source.blocks(5) for batch in block]), whole
        )
        assert list(Feed(images.take([]), None, device).batches(5)) == []


def test_training_streams_to_the_same_weights_in_bounded_memory(monkeypatch) -> None:
    found = {}
    for limit in (0, feed.RESIDENT):
        monkeypatch.setattr(feed, "RESIDENT", limit)
        data = encoded(60)
        model = make_classifier(norm_member(1).network, size=SIDE)
        train(model, data, nominal(), epochs=2, batch_size=8, keep="last", seed=5)
        found[limit == 0] = ({k: v.clone() for k, v in model.state_dict().items()}, data.images)
    for name, tensor in found[True][0].items():
        assert torch.equal(tensor, found[False][0][name]), name
    streamed, held = (images.alive for _, images in (found[True], found[False]))
    # One batch in use, one handed over: never a share of the set.
    assert streamed["most"] <= 3 * 8 * EACH
    assert streamed["decoded"] >= 2 * 56
    # Held: decoded once (and one picture to learn the size).
    assert held["decoded"] <= 60 + 1


@pytest.mark.parametrize("method", ["grid", "racing", "gradient"])
def test_seasoning_streams_to_the_same_soup_in_bounded_memory(method: str, monkeypatch) -> None:
    members = [norm_member(seed) for seed in (1, 2)]
    source = toy_images(24)
    found = {}
    for limit in (2 * 5 * EACH, feed.RESIDENT):  # two batches at a time
        monkeypatch.setattr(feed, "RESIDENT", limit)
        data = encoded(60)
        few = {"steps": 7} if method == "gradient" else {}
        result = season(method, members, data, source=source, shots=25, batch_size=5, **few)
        found[limit < 10_000] = (result, data.images.alive)
    streamed, held = found[True][0], found[False][0]
    assert streamed.weights == held.weights
    assert streamed.accuracy == held.accuracy
    assert streamed.ensemble_accuracy == held.ensemble_accuracy
    assert streamed.record.details["fingerprint"] == held.record.details["fingerprint"]
    if held.matrix is not None:
        assert np.array_equal(streamed.matrix.loss, held.matrix.loss)
    # A block of two batches, the last one looked at, the next one, and a picture for the size.
    assert found[True][1]["most"] <= (2 * 5 + 2 * 5 + 2) * EACH < 25 * EACH
    if method == "grid":
        # Every soup meets a block before the next is decoded: not once for each soup.
        # The 25 shots once more, for the record of what was seen.
        assert found[True][1]["decoded"] <= 60 + 25 + 10


@pytest.mark.parametrize("mixed", [False, True])
def test_the_first_pass_gives_a_batch_before_all_are_decoded_and_keeps_them(mixed: bool) -> None:
    images = encoded(60).images
    source = Feed(images, None, torch.device("cpu"))
    order = torch.randperm(60, generator=torch.Generator().manual_seed(2)) if mixed else None
    first = source.batches(4, order)
    begun = next(first)
    assert images.alive["decoded"] < 60
    whole = torch.cat([begun, *first])
    assert images.alive["decoded"] == 60 + 1  # one more tells the size
    again = torch.cat(list(source.batches(7, order)))
    assert torch.equal(whole, again)
    assert torch.equal(source.held, toy_images(60, norm_member(2), noise=0.3).images.pixels)
    assert images.alive["decoded"] == 60 + 1
