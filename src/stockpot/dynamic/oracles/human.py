"""People as an oracle: a sheet of images to fill in, read back by the images' own digests.

Each rater fills in a sheet of their own: `review.csv`, and copies of it named `review-NAME.csv`.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor, nn

from stockpot.dynamic.oracle import Oracle, Setting
from stockpot.dynamic.oracles import oracles
from stockpot.dynamic.oracles.raters import krippendorff_alpha
from stockpot.errors import BadDataError
from stockpot.types import Reference

SHEET = "review.csv"
SHEETS = "review*.csv"
COLUMNS = ("file", "sha256", "label", "answer")
_NO_CLASS = ("none", "unclear", "-")
"""A rater may write that no class is left; that is an answer, and no class."""


def digest(pixels: Tensor) -> str:
    """The identity of one image: the sha256 of its 8-bit pixels."""
    levels = (pixels.detach().clamp(0, 1) * 255).round().to(torch.uint8).cpu().contiguous()
    text = f"{tuple(levels.shape)}:".encode()
    return hashlib.sha256(text + levels.numpy().tobytes()).hexdigest()


class HumanOracle:
    """Answers that people wrote down; images that nobody has judged are abstained from."""

    def __init__(
        self, answers: Mapping[str, Sequence[int | None]], setting: Setting, name: str, raters: int
    ) -> None:
        self.answers = answers
        self.count = setting.columns
        self.name = name
        self.raters = raters

    @property
    def networks(self) -> Sequence[nn.Module]:
        """People have none."""
        return ()

    @property
    def note(self) -> str:
        """How many they are, and how far they agree."""
        several = sum(len(each) > 1 for each in self.answers.values())
        told = f"{self.raters} raters judged {len(self.answers)} images"
        if not several:
            return f"{told}, none of them twice: how far people agree is not known"
        alpha = krippendorff_alpha(list(self.answers.values()))
        return f"{told}, {several} of them more than once: Krippendorff's alpha {alpha:.3f}"

    def judge(self, pixels: Tensor) -> Tensor:
        """The share of raters who named each class; who saw no class takes part, and names none."""
        shares = pixels.new_zeros(len(pixels), self.count)
        for row, image in enumerate(pixels):
            told = self.answers.get(digest(image), ())
            for answer in told:
                if answer is not None:
                    shares[row, answer] += 1 / len(told)
            # Where most see no class, no class stands.
            if 2 * sum(answer is None for answer in told) > len(told):
                shares[row] = 0
        return shares


@oracles.register("human")
def human(setting: Setting, *, path: Annotated[str, Reference("sheets")]) -> Oracle:
    """What people answered on the sheets of an exported benchmark.

    Args:
        path: the exported folder, whose `review*.csv` are one rater's each, or one such sheet with
            the column `answer` filled in.
    """
    sheets = sheets_at(path)
    answers: dict[str, list[int | None]] = {}
    raters = 0
    for sheet in sheets:
        told = _read(sheet, setting)
        raters += bool(told)
        for mark, answer in told.items():
            answers.setdefault(mark, []).append(answer)
    if not any(answer is not None for told in answers.values() for answer in told):
        raise BadDataError(f"human: the column answer of {sheets[0]} is empty.")
    return HumanOracle(answers, setting, f"human({sheets[0].parent.name})", raters)


def sheets_at(path: str) -> list[Path]:
    """The sheets of an exported folder, or the one sheet that is named."""
    place = Path(path).expanduser()
    sheets = sorted(place.glob(SHEETS)) if place.is_dir() else [place]
    if not sheets or not all(sheet.is_file() for sheet in sheets):
        wanted = place / SHEET if place.is_dir() else place
        raise BadDataError(f"human: no sheet at {wanted}.", hint="Export one with export=FOLDER.")
    return sheets


def _read(sheet: Path, setting: Setting) -> dict[str, int | None]:
    """What one rater answered, by the digest of the image; none stands for no class."""
    with sheet.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    if not rows or not set(COLUMNS) <= set(rows[0]):
        raise BadDataError(f"human: {sheet} needs the columns {', '.join(COLUMNS)}.")
    numbers = {name: index for index, name in enumerate(setting.classes)}
    answers: dict[str, int | None] = {}
    for row in rows:
        answer = (row["answer"] or "").strip()
        if not answer:
            continue
        if answer not in numbers and answer.casefold() not in _NO_CLASS:
            raise BadDataError(
                f"human: {sheet} answers {answer!r} for {row['file']}, which is no class.",
                hint="Write a class name, or none.",
            )
        answers[row["sha256"]] = numbers.get(answer)
    return answers
