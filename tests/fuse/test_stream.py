"""The walk over checkpoints: what waits, what is read ahead, and by whom."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from threading import Condition, get_ident

import pytest
import torch

from stockpot.checkpoints.alignment import align
from stockpot.checkpoints.state_dict import StateDictSource
from stockpot.fuse import read_ahead
from stockpot.fuse import stream as streams
from stockpot.fuse.fuser import Slab
from stockpot.fuse.stream import Piece, Stream

STEP = 100
STRETCHES = 20
PATIENCE = 5.0


class Watched(StateDictSource):
    """One tensor of many stretches, and one of many rows; notes what is read ahead."""

    def __init__(self, label: str) -> None:
        state = {"long": torch.ones(STRETCHES * STEP)}
        state |= {f"layer.{i}": torch.ones(STEP) for i in range(STRETCHES)}
        super().__init__(state, label=label)
        self.fetched: list[tuple[str, int]] = []
        self.readers: set[int] = set()
        self.moved = Condition()

    def prefetch(self, name: str, start: int, stop: int) -> None:
        with self.moved:
            self.fetched.append((name, start))
            self.readers.add(get_ident())
            self.moved.notify_all()

    def wait_for(self, place: tuple[str, int]) -> bool:
        with self.moved:
            return self.moved.wait_for(lambda: place in self.fetched, PATIENCE)


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Watched:
    monkeypatch.setattr(streams, "STRETCH", STEP)
    return Watched("a")


def every_piece(stream: Stream) -> Iterator[Piece]:
    return stream.pieces(stream.alignment.rows, lambda row: True)


def test_what_follows_is_read_while_a_stretch_is_at_work(member: Watched) -> None:
    """The next stretch of the same tensor too: a tensor may be larger than the memory."""
    stream = Stream(align([member]), threads=1)
    places = [(piece.row.name, piece.start) for piece in every_piece(stream)]
    following = dict(pairwise(places))

    def work(slab: Slab) -> None:
        after = following.get((slab.name, slab.start))
        assert after is None or member.wait_for(after), after

    stream.walk(every_piece(stream), work)
    assert get_ident() not in member.readers
    assert set(places[1:]) <= set(member.fetched)


@pytest.mark.parametrize("allowed", [0, 1, 5])
def test_reading_ahead_keeps_to_its_bytes(
    member: Watched, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES", allowed * 4 * STEP)
    stream = Stream(align([member]), threads=1)
    order = {(piece.row.name, piece.start): n for n, piece in enumerate(every_piece(stream))}

    def work(slab: Slab) -> None:
        # At least one is read ahead; time enough passes for more.
        here = order[slab.name, slab.start]
        with member.moved:
            member.moved.wait(0.002)
            assert all(order[place] <= here + max(allowed, 1) for place in member.fetched)

    stream.walk(every_piece(stream), work)


def test_no_stretch_is_read_ahead_twice(member: Watched) -> None:
    stream = Stream(align([member]), threads=4)
    stream.walk(every_piece(stream), lambda slab: None)
    assert len(member.fetched) == len(set(member.fetched))


@pytest.mark.parametrize("threads", [1, 3])
def test_no_piece_waits_in_a_queue(member: Watched, threads: int) -> None:
    """66 B weights are 250,000 pieces: each is made when a worker is free for it."""
    stream = Stream(align([member]), threads=threads)
    taken = done = 0

    def pieces() -> Iterator[Piece]:
        nonlocal taken
        for piece in every_piece(stream):
            assert taken - done <= threads
            taken += 1
            yield piece

    def work(slab: Slab) -> None:
        nonlocal done
        done += 1

    stream.walk(pieces(), work)
    assert taken == 2 * STRETCHES


def test_an_error_ends_the_walk(member: Watched) -> None:
    stream = Stream(align([member]), threads=2)
    begun = 0

    def work(slab: Slab) -> None:
        nonlocal begun
        begun += 1
        raise LookupError(slab.name)

    with pytest.raises(LookupError, match="long"):
        stream.walk(every_piece(stream), work)
    assert begun <= 2
