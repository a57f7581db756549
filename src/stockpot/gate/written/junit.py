"""JUnit XML: one test case per rule, as CI servers show them."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from stockpot.gate.outcome import Checked

# Characters that XML 1.0 cannot hold, even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(checked: Checked) -> str:
    """The document."""
    undecided, failed = checked.counted("not decided"), checked.counted("fails")
    strict = checked.undecided == "fail"
    counts = {
        "tests": str(len(checked.outcomes)),
        "failures": str(failed + (undecided if strict else 0)),
        "skipped": str(0 if strict else undecided),
        "errors": "0",
    }
    root = Element("testsuites", {"name": "stockpot check", **counts})
    suite = SubElement(root, "testsuite", {"name": _clean(checked.name), **counts})
    for outcome in checked.outcomes:
        place = ".".join(filter(None, ("stockpot", checked.model, outcome.data)))
        case = SubElement(
            suite, "testcase", {"name": _clean(str(outcome.rule)), "classname": _clean(place)}
        )
        if outcome.status == "holds":
            SubElement(case, "system-out").text = _clean(outcome.words)
        elif checked.stands(outcome):
            SubElement(case, "skipped", {"message": _clean(f"not decided: {outcome.words}")})
        else:
            kind = "worse" if outcome.status == "fails" else "undecided"
            text = _clean(f"{outcome.status}: {outcome.words}")
            SubElement(case, "failure", {"type": kind, "message": text}).text = text
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
