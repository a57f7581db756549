"""A method that comes to give something else does not pass for what it gave before."""

from __future__ import annotations

from stockpot.checkpoints.record import Record
from stockpot.fuse import fusers
from stockpot.harden.augment import edition_of


def test_another_edition_is_another_question() -> None:
    first = Record(verb="fuse", method="dare", parameters={"density": 0.5}, seed=1)
    later = first.model_copy(update={"edition": 2})
    assert "edition" not in first.model_dump_json(exclude_defaults=True)
    assert first.digest == "a912e2858dd67223"
    assert later.digest != first.digest
    assert first.differences(later) == ["edition 1 -> 2"]


def test_records_from_before_are_of_the_first_edition() -> None:
    old = Record.model_validate({"verb": "harden", "method": "finetune"})
    assert old.edition == 1
    assert fusers.get("dare").tags.edition == fusers.get("della").tags.edition == 2
    assert fusers.get("ties").tags.edition == 1
    assert edition_of(("flip", "randaugment")) == 2
    assert edition_of(("flip",)) == edition_of(()) == 1
