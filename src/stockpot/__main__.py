"""`python -m stockpot`: the same as the command `stockpot`."""

from __future__ import annotations

from stockpot.cli.main import main

if __name__ == "__main__":
    main()
