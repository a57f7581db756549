"""The browser that opens what commands wrote."""

from __future__ import annotations

import importlib.util
import os
import shutil


def chromium() -> str | None:
    """Where it is, as the tests find it; without it, or what drives it, a line says so."""
    found = os.environ.get("STOCKPOT_CHROMIUM") or shutil.which("chromium")
    if not found:
        print("not opened: no chromium on the PATH (or in STOCKPOT_CHROMIUM)")
    elif importlib.util.find_spec("playwright") is None:
        print("not opened: no playwright, which drives chromium")
        return None
    return found
