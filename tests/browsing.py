"""What tests ask of a page in a browser: can all read it, does it fit, how does it print?"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def violations(page: Any, *, gravest: tuple[str, ...] = ("serious", "critical")) -> list[str]:
    """What axe finds against a page as it is now: rule, and the first element it is about."""
    import axe_playwright_python

    script = Path(axe_playwright_python.__file__).parent / "axe.min.js"
    # The page's policy forbids scripts from elsewhere, so it is evaluated and not added.
    page.evaluate(script.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")
    return [
        f"{one['id']}: {one['nodes'][0]['html']}"
        for one in found["violations"]
        if one["impact"] in gravest
    ]


def no_overflow(page: Any) -> bool:
    """Whether the page itself needs no scrolling to the side."""
    wide: int = page.evaluate("document.documentElement.scrollWidth")
    return wide <= int(page.viewport_size["width"])
