"""The figures of the CLIP fusion study, from its CSV files.

python studies/clip_fusion/figures.py
"""

from __future__ import annotations

from tables import HERE, graded

from stockpot.charts import Mark, Spot, lines, save, whiskers
from stockpot.results.score_tables import table_of_rows
from stockpot.results.tables import percents, read_csv


def draw() -> None:
    """The mean of every method, task arithmetic by its scale, and accuracy by severity."""
    table = table_of_rows(read_csv(HERE / "fusion.csv"))
    shown = [row for row in table.rows if "=" not in row.model or row.model.endswith("=0.3")]
    ordered = sorted(shown, key=lambda row: row.mean.value)
    marks = [Mark(name, mean.value, mean.ci_low, mean.ci_high, percents(mean))
             for name, _, mean in ordered]  # fmt: skip
    save(whiskers(marks, title="Mean accuracy over five tasks (%)"), HERE / "fusion.svg")

    swept = sorted((row.model.partition("=")[2], row) for row in table.rows if "=" in row.model)
    drawn: dict[str, list[Spot]] = {}
    for scale, row in swept:
        for task, s in zip(("mean", *table.tasks), (row.mean, *row.scores), strict=True):
            drawn.setdefault(task, []).append(Spot(float(scale), s.value, s.ci_low, s.ci_high))
    picture = lines(drawn, across="scale of task arithmetic", up="accuracy")
    save(picture, HERE / "sweep.svg")

    levels, corrupted = graded(read_csv(HERE / "robustness.csv"))
    picture = lines(
        {name: [Spot(x, y) for x, y in zip(levels, values, strict=True)]
         for name, values in corrupted.items()},
        across="severity", up="accuracy, mean over tasks and corruptions",
    )  # fmt: skip
    save(picture, HERE / "robustness.svg")


if __name__ == "__main__":
    draw()
