"""The frame of every page: head, colours, style, scripts, and what it may load (nothing)."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from stockpot.charts import page_colours
from stockpot.results.provenance import package_version

OFFLINE = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
"""What a browser may load for a page: what stands in it. Whatever a name of a model or of a class
smuggles in, no request leaves the page."""


@cache
def environment(package: str = "stockpot.report") -> Environment:
    """Templates of a package (its folder `templates`), and those of the design.

    One for all pages of it: it keeps the templates that it has compiled.
    """
    design = PackageLoader("stockpot.report.design", "templates")
    own = PackageLoader(package)
    found = Environment(
        loader=ChoiceLoader([own, design]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["told"] = told
    return found


def told(text: str) -> Markup:
    """A sentence as a page shows it: what stands in backticks is a command."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def render_page(
    template: str | Template,
    *,
    title: str,
    subtitle: str = "",
    facts: str = "",
    package: str = "stockpot.report",
    policy: str = OFFLINE,
    **values: Any,
) -> str:
    """A page as text; the same values give the same page.

    Args:
        template: extends `base.html.j2` and fills its blocks `nav` and `main`, and where it needs
            them `style` and `script`.
        title: of the page.
        subtitle: a sentence below it.
        facts: a small line below that: counts, dates, versions.
        package: whose folder `templates` holds the template.
        policy: what a browser may load for it; a page that reads files beside it says so here.
        values: what the template shows.
    """
    frame = {
        "title": title,
        "subtitle": subtitle,
        "facts": facts,
        "policy": policy,
        "version": package_version("stockpot"),
        "colours": Markup(page_colours()),
    }
    return environment(package).get_template(template).render(frame | values)


def json_script(name: str, value: object) -> Markup:
    """Values for a script of the page: `JSON.parse(document.getElementById(name).textContent)`.

    Whatever they hold, they cannot end the element or begin another.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    start = Markup('<script type="application/json" id="{}">').format(name)
    return start + Markup(text) + Markup("</script>")
