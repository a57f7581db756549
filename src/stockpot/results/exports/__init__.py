"""Result files in other people's formats; `write.py` lists them."""

from stockpot.results.exports.write import FORMATS, export

__all__ = ["FORMATS", "export"]
