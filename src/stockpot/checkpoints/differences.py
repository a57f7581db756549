"""Why checkpoints do not line up: all differences in one error, with what resolves each."""

from __future__ import annotations

from stockpot.errors import BadCheckpointError

_SHOWN = 4
_KINDS = {
    "missing": ("lacks", "--intersect, --exclude"),
    "extra": ("has, beyond {template},", "--intersect, --exclude"),
    "head": (
        "has another number of classes than {template}:",
        "--head drop, --head first, --head each",
    ),
    "shape": (
        "has another shape than {template}:",
        "--exclude, --intersect; another architecture cannot be fused",
    ),
    "dtype": ("holds integers where floats are fused:", "--exclude"),
}


class Differences:
    """Collects what does not fit, then raises once."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._found: dict[tuple[str, str], list[str]] = {}

    def add(self, label: str, kind: str, text: str) -> None:
        """Note a difference of one checkpoint."""
        self._found.setdefault((label, kind), []).append(text)

    def raise_if_any(self) -> None:
        """Raise one error that lists all differences, if there are any."""
        if not self._found:
            return
        lines = []
        for (label, kind), names in self._found.items():
            what, option = _KINDS[kind]
            shown = ", ".join(names[:_SHOWN])
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            lines.append(
                f"  - {label} {what.format(template=self._template)} {shown}{more} [{option}]"
            )
        listing = "\n".join(lines)
        raise BadCheckpointError(
            f"the checkpoints do not line up:\n{listing}\n",
            hint="In brackets: the option that resolves it.",
        )
