"""People as an oracle: a sheet of images to fill in, read back by the images' own digests."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from stockpot.dynamic.oracle import Oracle, Setting
from stockpot.dynamic.oracles import oracles
from stockpot.errors import BadDataError

SHEET = "review.csv"
COLUMNS = ("file", "sha256", "label", "answer")


def digest(pixels: Tensor) -> str:
    """The identity of one image: the sha256 of its 8-bit pixels."""
    levels = (pixels.detach().clamp(0, 1) * 255).round().to(torch.uint8).cpu().contiguous()
    text = f"{tuple(levels.shape)}:".encode()
    return hashlib.sha256(text + levels.numpy().tobytes()).hexdigest()


class HumanOracle:
    """Answers that people wrote down; images that nobody has judged are abstained from."""

    def __init__(self, answers: dict[str, int], setting: Setting, name: str) -> None:
        self.answers = answers
        self.count = setting.columns
        self.name = name

    @property
    def networks(self) -> Sequence[nn.Module]:
        """People have none."""
        return ()

    def judge(self, pixels: Tensor) -> Tensor:
        """One for the class that was named."""
        shares = pixels.new_zeros(len(pixels), self.count)
        for row, image in enumerate(pixels):
            answer = self.answers.get(digest(image))
            if answer is not None:
                shares[row, answer] = 1.0
        return shares


@oracles.register("human")
def human(setting: Setting, *, path: str) -> Oracle:
    """What people answered on the sheet of an exported benchmark.

    Args:
        path: the exported folder, or its `review.csv` with the column `answer` filled in.
    """
    sheet = Path(path).expanduser()
    sheet = sheet / SHEET if sheet.is_dir() else sheet
    if not sheet.is_file():
        raise BadDataError(f"human: no sheet at {sheet}.", hint="Export one with export=FOLDER.")
    with sheet.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    if not rows or not set(COLUMNS) <= set(rows[0]):
        raise BadDataError(f"human: {sheet} needs the columns {', '.join(COLUMNS)}.")
    numbers = {name: index for index, name in enumerate(setting.classes)}
    answers = {}
    for row in rows:
        answer = (row["answer"] or "").strip()
        if answer and answer not in numbers:
            # A reviewer may write that no class is left; that is an answer, and no class.
            if answer.casefold() in ("none", "unclear", "-"):
                continue
            raise BadDataError(
                f"human: {sheet} answers {answer!r} for {row['file']}, which is no class.",
                hint="Write a class name, or none.",
            )
        if answer:
            answers[row["sha256"]] = numbers[answer]
    if not answers:
        raise BadDataError(f"human: the column answer of {sheet} is empty.")
    return HumanOracle(answers, setting, f"human({sheet.parent.name})")
