"""An SQL index of result files: many folders in one database, asked in SQL or by filters.

The files are the truth. The index can be made again from them at any time, and says when it is
behind them. `open.py` opens one; nothing here is imported where no index is named.
"""
