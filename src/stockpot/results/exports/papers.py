"""Headline tables for people who write: Markdown, and LaTeX with booktabs."""

from __future__ import annotations

from collections.abc import Sequence

from stockpot.results.headline import (
    Shown,
    format_value,
    headline_columns,
    headline_rows,
    images_of,
)
from stockpot.results.schema import CellResult
from stockpot.results.summary.comparable import Comparable, comparable
from stockpot.results.tables import markdown as markdown_table

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "×": r"$\times$", "…": r"\ldots{}",
}  # fmt: skip


def markdown(results: Sequence[CellResult]) -> str:
    """A table for every dataset and measure: models down, headline scores across.

    What cannot be compared does not share a table; bold is best beyond noise.
    """
    parts = []
    for group in comparable(results):
        columns = headline_columns(group.cells)
        if not columns:
            continue
        rows = [
            [_plain(model), *(_marked(shown) for shown in row)]
            for model, row in headline_rows(group.cells, columns).items()
        ]
        head = ["model", *(_plain(column.title) for column in columns)]
        title = f"**{_plain(group.measure)}**: {_plain(_about(group))}"
        parts.append(f"{title}\n\n{markdown_table(head, rows)}\n")
    return "\n".join(parts)


def latex(results: Sequence[CellResult]) -> str:
    """The same as `tabular`s; they need the package booktabs."""
    parts = ["% needs \\usepackage{booktabs}\n"]
    for group in comparable(results):
        columns = headline_columns(group.cells)
        if not columns:
            continue
        head = ["model", *(column.title for column in columns)]
        lines = [
            r"\begin{table}",
            rf"\caption{{{_tex(group.measure)}: {_tex(_about(group))}, 95\,\% intervals}}",
            rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
            r"\toprule",
            " & ".join(map(_tex, head)) + r" \\",
            r"\midrule",
        ]
        for model, row in headline_rows(group.cells, columns).items():
            lines.append(" & ".join([_tex(model), *map(_tex_score, row)]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)


def _about(group: Comparable) -> str:
    return images_of(group.cells) + (f" ({group.apart})" if group.apart else "")


def _marked(shown: Shown) -> str:
    return f"**{shown.text}**" if shown.best else shown.text


def _plain(words: str) -> str:
    """Words that stay words in a Markdown table."""
    escaped = "".join(f"\\{c}" if c in "\\`*_[]|<>#" else c for c in words)
    return " ".join(escaped.split())


def _tex_score(shown: Shown) -> str:
    score = shown.score
    if score is None:
        return "--"
    value = _tex(format_value(score.value, score.unit))
    value = rf"\textbf{{{value}}}" if shown.best else value
    if score.ci_low is None or score.ci_high is None or score.n <= 1:
        return value
    low, high = (format_value(v, score.unit, bare=True) for v in (score.ci_low, score.ci_high))
    return rf"{value} {{\footnotesize[{low}, {high}]}}"


def _tex(words: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(words.split()))
