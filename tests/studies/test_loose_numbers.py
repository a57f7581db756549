"""No result is typed into a study's page: what words say in numbers is filled in, or of the plan.

A number outside of filled places is one of the design, which plan.md has, or repeats one that is
filled in on the same page. That alone would let "by 12 points" pass where 12 images are planned:
what has the unit of a result must stand in plan.md with that unit. Spelt numbers count too.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[2] / "studies"
PAGES = sorted(str(page.parent.relative_to(STUDIES)) for page in STUDIES.rglob("README.md"))
PLACE = re.compile(r"<!-- (?!end)[^>]*-->(.*?)<!-- end -->", re.DOTALL)
NAMES = re.compile(
    r"```.*?```|`[^`]*`"  # code
    r"|\]\([^)]*\)|arXiv:[\d.v]+"  # links and papers
    r"|\b[A-Za-z][\w.]*[-/]\d[\w-]*"  # ResNet-50, ViT-B/16, CIFAR-10
    r"|\d+(?:\.\d+)?/255|95 %",  # a radius in grey levels, and what every interval is
    re.DOTALL,
)
SMALL = (
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SPELT = (
    {word: Decimal(n) for n, word in enumerate(SMALL, 2)}
    | {word: Decimal(10 * n) for n, word in enumerate(TENS, 2)}
    | {"hundred": Decimal(100), "thousand": Decimal(1000)}
)
DIGITS = r"\d[\d,]*(?:\.\d+)?"
NUMBER = re.compile(rf"(?<![\w.,])(?:{DIGITS}|\b(?:{'|'.join(SPELT)}))(?!\w)", re.IGNORECASE)
UNITS = {"point": "points", "points": "points", "percent": "%", "%": "%", "s": "s",
         "seconds": "s", "minute": "minutes", "minutes": "minutes", "hours": "hours"}  # fmt: skip
RESULT = re.compile(
    rf"{NUMBER.pattern}(?:(?:,| to| and| or)? ?{NUMBER.pattern})*[ -]({'|'.join(UNITS)})(?![\w/])",
    re.IGNORECASE,
)
Quantity = tuple[Decimal, str]


def words(text: str) -> str:
    """What a page says outside of filled places, code, links and names."""
    return " ".join(NAMES.sub(" ", PLACE.sub(" ", text)).split())


def value(number: str) -> Decimal:
    digits = number.rstrip(",").replace(",", "")
    return SPELT.get(number.lower()) or Decimal(digits).normalize()


def numbers(text: str) -> set[Decimal]:
    return {value(found) for found in NUMBER.findall(text)}


def results(text: str) -> set[Quantity]:
    """Numbers with the unit of a result; those of "3 to 5 points" both have it."""
    return {
        (number, UNITS[found[1].lower()])
        for found in RESULT.finditer(text)
        for number in numbers(found[0])
    }


def loose(page: str, plan: str) -> set[str]:
    """Numbers of a page's words that are neither of its plan nor filled in on it."""
    own, planned = words(page), words(plan)
    filled = {number for place in PLACE.findall(page) for number in numbers(place)}
    found = numbers(own) - numbers(planned) - filled
    typed = results(own) - results(planned)
    return {f"{n:f}" for n in found} | {f"{n:f} {unit}" for n, unit in typed}


def plan_of(page: str) -> str:
    """The page of all studies has no plan of its own: it tells what theirs have."""
    plans = STUDIES.glob("**/plan.md") if page == "." else [STUDIES / page / "plan.md"]
    return "\n".join(plan.read_text(encoding="utf-8") for plan in plans if plan.exists())


@pytest.mark.parametrize("study", PAGES)
def test_numbers_in_words_are_planned_or_filled_in(study: str) -> None:
    text = (STUDIES / study / "README.md").read_text(encoding="utf-8")
    found = loose(text, plan_of(study))
    assert not found, f"studies/{study}/README.md: fill these in by tables.py, or leave them out"


@pytest.mark.parametrize("study", PAGES)
def test_a_place_in_a_sentence_does_not_begin_a_line(study: str) -> None:
    # A line that begins with a comment is a block of HTML: it would tear the paragraph apart.
    text = (STUDIES / study / "README.md").read_text(encoding="utf-8")
    assert not re.findall(r"^ *(?:- )?<!-- (?!end)[^>\n]*-->(?=\S).*", text, re.MULTILINE)


def test_what_was_typed_is_found() -> None:
    plan = "200 images, 12 seeds, a margin of 3 points, `rate` 0.5, three kinds."
    page = (
        "# Of 12 seeds, ResNet-50 on CIFAR-10 (arXiv:2302.10164) at 8/255: 95 % intervals\n"
        "`0.7` of 200 images, three kinds, F4, within 3 points; +2.5 again, [see](a-77.md).\n"
        "<!-- table -->\n| 2.5 |\n<!-- end -->\nIt gains <!-- f -->41.5<!-- end --> points.\n"
    )
    assert not loose(page, plan)
    assert loose(page + "It gains 1.1, by 12 points or 3 to 200 %.", plan) == {
        *("1.1", "12 points", "3 %", "200 %"),
    }
    assert loose(page + "Eleven of fourteen held, in 660 s.", plan) == {
        *("11", "14", "660", "660 s"),
    }
