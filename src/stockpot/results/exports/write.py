"""`export`: results in one of these formats.

| format | for | layout |
|---|---|---|
| `csv` | spreadsheets, R | one row per score, one file |
| `parquet` | pandas, DuckDB, Spark | the same rows with their types, one file |
| `markdown` | pull requests, READMEs | a table per dataset, one file |
| `latex` | papers | the same with booktabs, one file |
| `lm-eval` | tools that read lm-evaluation-harness results | one JSON per model |
| `eval-results` | a Hugging Face model repository | `<model>/.eval_results/<data>.yaml` |
| `model-card` | the same | `<model>/README.md` with a `model-index` |
| `fusionbench` | scripts that read FusionBench reports | one JSON per model |
| `robustbench` | a RobustBench `model_info` entry | `<data>/<threat>/<model>.json` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from stockpot.errors import UnknownNameError
from stockpot.files import write_atomic
from stockpot.results.exports.harness import fusionbench, lm_eval
from stockpot.results.exports.hub import eval_results, model_cards
from stockpot.results.exports.papers import latex, markdown
from stockpot.results.exports.robustbench import robustbench
from stockpot.results.exports.rows import csv_file, parquet_file
from stockpot.results.named_apart import answers_apart
from stockpot.results.schema import CellResult

_WHOLE: dict[str, Callable[[list[CellResult]], str | bytes]] = {
    "csv": csv_file,
    "parquet": parquet_file,
    "markdown": markdown,
    "latex": latex,
}
"""What becomes one file."""
ROWS = ("csv", "parquet")
"""What has columns for seed and fingerprints; elsewhere a name must say which model it is."""
_MANY: dict[str, Callable[[list[CellResult]], dict[str, str]]] = {
    "lm-eval": lm_eval,
    "eval-results": eval_results,
    "model-card": model_cards,
    "fusionbench": fusionbench,
    "robustbench": robustbench,
}
"""What becomes a folder: the files by their place in it."""
FORMATS = (*_WHOLE, *_MANY)


def export(results: Iterable[CellResult], format: str, out: str | Path) -> list[Path]:
    """Write results in one of the formats above and say which files were written.

    Args:
        results: what to write.
        format: one of `FORMATS`.
        out: a file for the formats that are one, else a folder.
    """
    if format not in FORMATS:
        raise UnknownNameError("export format", format, FORMATS)
    cells = list(results)
    if format not in ROWS:
        cells = answers_apart(cells)
    if format in _WHOLE:
        write_atomic(Path(out), _WHOLE[format](cells))
        return [Path(out)]
    files = _MANY[format](cells)
    for name, text in files.items():
        write_atomic(Path(out) / name, text)
    return [Path(out) / name for name in files]
