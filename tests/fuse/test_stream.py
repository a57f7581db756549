"""The walk over checkpoints: what it asks for before its turn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from stockpot.checkpoints.alignment import align
from stockpot.checkpoints.state_dict import StateDictSource
from stockpot.fuse import stream as streams
from stockpot.fuse.stream import Piece, Stream

ROWS = 20


class Watched(StateDictSource):
    """Weights that note what was asked for and what was read, in order."""

    def __init__(self, label: str) -> None:
        super().__init__({f"layer.{i}": torch.ones(100) for i in range(ROWS)}, label=label)
        self.events: list[tuple[str, str]] = []

    def prefetch(self, name: str) -> None:
        self.events.append(("ask", name))

    def read(self, name: str) -> Tensor:
        self.events.append(("read", name))
        return super().read(name)


def walked(threads: int = 1) -> list[Watched]:
    members = [Watched("a"), Watched("b")]
    stream = Stream(align(members, None), threads=threads)

    def work(piece: Piece) -> None:
        for _ in stream.slab(piece).members():
            pass

    stream.walk(list(stream.pieces(stream.alignment.rows, lambda row: True)), work)
    return members


def most_ahead(events: list[tuple[str, str]]) -> list[int]:
    """For each read, the number of rows that were asked for and not read yet."""
    waiting: set[str] = set()
    found = []
    for what, name in events:
        if what == "ask":
            waiting.add(name)
        else:
            waiting.discard(name)
            found.append(len(waiting))
    return found


def test_several_rows_are_asked_for_before_their_turn() -> None:
    for member in walked():
        expected = [min(streams.AHEAD_ROWS, ROWS - 1 - row) for row in range(ROWS)]
        assert streams.AHEAD_ROWS > 1
        assert most_ahead(member.events) == expected


@pytest.mark.parametrize("threads", [1, 4])
def test_every_row_but_the_first_is_asked_for_at_most_once(threads: int) -> None:
    for member in walked(threads):
        asked = [name for what, name in member.events if what == "ask"]
        assert len(asked) == len(set(asked))
        if threads == 1:
            assert asked == [f"layer.{i}" for i in range(1, ROWS)]


@pytest.mark.parametrize(("allowed", "rows"), [(3, 3), (1, 1), (0, 1)])
def test_what_is_ahead_keeps_to_its_bytes(
    monkeypatch: pytest.MonkeyPatch, allowed: int, rows: int
) -> None:
    both = 2 * 4 * 100  # bytes of one row in both members
    monkeypatch.setattr(streams, "AHEAD_BYTES", allowed * both)
    for member in walked():
        assert max(most_ahead(member.events)) == rows
