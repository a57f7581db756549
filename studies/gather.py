"""Every claim of the five papers on one page: gathers the verdicts of the studies' pages.

    python studies/gather.py

reads the tables of claims in studies/*/README.md, which follow from the data beside them, and fills
studies/README.md; and the table of the published networks, which stands there and in the README of
the repository.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from stockpot.results.tables import fill, markdown

HERE = Path(__file__).parent
SAID = {
    "holds": "held", "the other way round": "did not hold", "not measured": "not run yet",
}  # fmt: skip
VERDICTS = ("held", "did not hold", "not told apart", "not run yet")
UNASKED = ("not run", "not measured")
"""What a page says of a claim for which further trainings have nothing."""


class Source(NamedTuple):
    """A table of claims on a study's page, and the columns that tell claim, finding and verdict."""

    study: str
    place: str
    claim: tuple[str, ...]
    found: str
    verdict: str
    but: str = r"(?!)"
    """Rows that are not claims of the paper."""
    parts: str = ""
    """Another table with what was found: by the first column of this one, the columns `found`."""
    again: str = ""
    """Another table with the same columns, over several trainings, whose verdicts come first."""
    planned: bool = True
    """Whether a plan came before the table itself; only then do verdicts of one training count
    where `again` has none."""


PAPERS = {
    "imagenet-c": (
        Source("enhancements", "claims", ("claim",), "difference of mCE", "verdict",
               again="trainings"),
        Source("surface", "findings", ("finding",), "difference in points", "verdict",
               again="trainings"),
        Source("real_networks", "claims", ("claim",), "statistic [95 %]", "verdict",
               but=r"(1|2|3|4|5|6|8|12|13|14|15|18|19|20|21|22|23|24) "),
    ),
    "soups": (
        Source("robust_soups", "claims", ("finding", "claim"), "difference, 95 %", "verdict"),
    ),
    "masks": (
        Source("robust_finetuning", "verdicts", ("claim", "as the paper has it"), "points [95 %]",
               "verdict", but=r"masks", parts="parts"),
    ),
    "fmr": (
        Source("fmr", "claims", ("claim",), "the lowest [95 %]", "verdict", but=r"O\d "),
        Source("fmr/photographs", "claims", ("claim",), "the lowest [95 %]", "verdict",
               but=r"O\d "),
        Source("real_networks", "claims", ("claim",), "statistic [95 %]", "verdict",
               but=r"(?!(22|24) )"),
    ),
    "fusion": (
        Source("clip_headroom", "claims", ("claim",), "points [95 %]", "verdict",
               but=r"(Second size, )?H(8|10)\b"),
        # The plan of clip_fusion is younger than its first table of the order.
        Source("clip_fusion", "order", ("published order",),
               "difference of means, points [95 %]", "here", again="trainings", planned=False),
    ),
}  # fmt: skip
"""Places of the page, and what is gathered there."""
TITLES = {
    "imagenet-c": "ImageNet-C and Icons-50", "soups": "Seasoning Model Soups",
    "masks": "Masked Images Are Counterfactual Samples",
    "fmr": "Foundation Model-oriented Robustness", "fusion": "FusionBench",
}  # fmt: skip


def place_of(study: str, place: str) -> str:
    """What a place of a study's page is filled with."""
    page = (HERE / study / "README.md").read_text(encoding="utf-8")
    mark = re.compile(rf"<!-- {re.escape(place)} -->\n(.*?)<!-- end -->", re.DOTALL)
    found = mark.search(page)
    if found is None:
        raise ValueError(f"studies/{study}/README.md has no table {place}")
    return found[1].strip()


def rows(study: str, place: str) -> list[dict[str, str]]:
    """A table of a study's page."""
    text = place_of(study, place)
    if not text.startswith("|"):  # words say why there is no table yet
        return []
    header, _, *body = (
        [cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()
    )
    return [dict(zip(header, cells, strict=True)) for cells in body]


def claims(source: Source) -> list[list[str]]:
    """Claim, what was found, verdict, and where."""
    found = []
    for row in replaced(source):
        text = ": ".join(row[column] for column in source.claim)
        if re.match(source.but, text):
            continue
        said = row[source.verdict].strip("*")
        # A cell with many networks is shortened to the first; the study's page has them all.
        first, *others = found_in(source, row).split("; ")
        shown = f"{first}; and {len(others)} more" if others else first
        link = f"[{source.study}]({source.study}/README.md)"
        found.append([text, shown, SAID.get(said, said), link])
    return found


def replaced(source: Source) -> list[dict[str, str]]:
    """The table's rows; those that were judged over several trainings as they were there. The
    others keep what the table says, if it was planned."""
    later = rows(source.study, source.again) if source.again else []
    over = {row[source.claim[0]]: row for row in later if row[source.verdict] not in UNASKED}
    first = rows(source.study, source.place)
    if not source.planned:
        first = [row | {source.found: "-", source.verdict: "not run yet"} for row in first]
    return [over.get(row[source.claim[0]], row) for row in first]


def found_in(source: Source, row: dict[str, str]) -> str:
    """The numbers behind a verdict."""
    if not source.parts:
        return row[source.found]
    key = source.claim[0]
    own = [part for part in rows(source.study, source.parts) if part[key] == row[key]]
    return "; ".join(f"{part['part']} {part[source.found]}" for part in own)


def networks() -> dict[str, str]:
    """The published networks, for both pages."""
    return {"networks": place_of("real_networks", "main")}


def gathered() -> dict[str, str]:
    """The places of README.md beside this file."""
    tables, counted = {}, []
    for name, sources in PAPERS.items():
        body = [row for source in sources for row in claims(source)]
        tables[name] = markdown(("claim", "found", "verdict", "study"), body)
        told = Counter(row[2] for row in body)
        counted.append([TITLES[name], str(len(body)), *(str(told[v]) for v in VERDICTS)])
    tables["counted"] = markdown(("paper", "rows", *VERDICTS), counted)
    return tables


if __name__ == "__main__":
    fill(HERE / "README.md", gathered() | networks())
    fill(HERE.parent / "README.md", networks())
