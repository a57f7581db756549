"""What a measurement leaves behind: schema, store, statistics, exports."""

from stockpot.results.collection import Results
from stockpot.results.schema import CellKey, CellResult, Score
from stockpot.results.store import ResultStore, load_results

__all__ = ["CellKey", "CellResult", "ResultStore", "Results", "Score", "load_results"]
