"""A number in the words of a study's page stands in one of its tables, which data fill."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[2] / "studies"
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*\.\d+(?![\w.]*\d)")
PLACE = re.compile(r"<!-- (?!end)[^>]*-->\n(.*?)<!-- end -->", re.DOTALL)
NOT_WORDS = re.compile(r"```.*?```|`[^`]*`|arXiv:[\d.v]+|\]\([^)]*\)", re.DOTALL)
ELSEWHERE = {
    "clip_fusion": {
        "0.00025": "a rate of the recipe",
        **dict.fromkeys(("82.4", "82.6", "90.3", "68.0", "89.2", "66.5", "48.2", "72.2"),
                        "the paper's"),
    },
    "clip_headroom": {"14.2": "millions of weights, plan.md", "0.06": "a cosine, told by the run"},
    "label_free": {"0.01": "a rate of the paper"},
    "real_networks": {
        **dict.fromkeys(("0.78", "0.64"), "a trial on 48 photographs, said to be one"),
        "26.9": "what the measure says since, said there",
    },
    "robust_finetuning": {"1.6": "millions of weights", "14.2": "the first run's page"},
    "robust_soups": dict.fromkeys(("0.4", "0.6"), "weights of the chosen soups, claims.json"),
    "xrays": {"4.0": "a licence"},
}  # fmt: skip
"""Numbers that no table of the page has, and where they come from."""


PAGES = sorted(page.parent.name for page in STUDIES.glob("*/README.md"))


@pytest.mark.parametrize("study", [*PAGES, "fmr/photographs"])
def test_numbers_in_words_stand_in_a_table(study: str) -> None:
    # What follows this heading says of itself that it is of files in results/.
    text = (STUDIES / study / "README.md").read_text(encoding="utf-8").split("# The former run")[0]
    known = {
        number for table in PLACE.findall(text) for number in re.findall(r"\d[\d,]*\.\d+", table)
    }
    words = NOT_WORDS.sub("", PLACE.sub("", text))
    loose = set(NUMBER.findall(words)) - known - ELSEWHERE.get(study, {}).keys()
    assert not loose, f"{study}: fill these by tables.py, or say where they come from"
