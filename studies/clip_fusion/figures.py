"""The figures of the CLIP fusion study, from its CSV files.

python studies/clip_fusion/figures.py
"""

from __future__ import annotations

from tables import HERE, graded, models_of

from stockpot.charts import Mark, Spot, lines, save, whiskers
from stockpot.results.tables import percents, read_csv
from stockpot.results.task_table import mean_score


def draw() -> None:
    """The mean of every method, task arithmetic by its scale, and accuracy by severity."""
    tasks, models = models_of(read_csv(HERE / "fusion.csv"))
    means = {name: mean_score(scores) for name, scores in models.items()}
    marks = [
        Mark(name, mean.value, mean.ci_low or 0, mean.ci_high or 1, percents(mean))
        for name, mean in sorted(means.items(), key=lambda pair: pair[1].value)
    ]
    save(whiskers(marks, title="Mean accuracy over five tasks (%)"), HERE / "fusion.svg")

    swept = [name for name in models if "scale=" in name]
    drawn: dict[str, list[Spot]] = {}
    for name in sorted(swept, key=lambda name: float(name.partition("=")[2])):
        scale = float(name.partition("=")[2])
        for task, s in zip(("mean", *tasks), (means[name], *models[name]), strict=True):
            drawn.setdefault(task, []).append(Spot(scale, s.value, s.ci_low, s.ci_high))
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
