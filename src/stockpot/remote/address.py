"""What a text means as a place: a folder of this machine, or an address of storage."""

from __future__ import annotations

import re
from pathlib import Path

from stockpot.errors import UserError

# One letter before the colon is a drive of Windows. One slash counts as two: pathlib folds them.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)")
_HERE = ("file", "local")
_PAGES = ("http", "https")


def address(place: str | Path) -> str | None:
    """The address, such as `s3://bucket/run`; none where the place is a folder of this machine."""
    found = _ADDRESS.fullmatch(str(place))
    if found is None or found[1].lower() in _HERE:
        return None
    scheme, rest = found[1].lower(), found[2].strip("/")
    if not rest:
        raise UserError(f"{place}: expected a folder after {scheme}://, such as {scheme}://a/run.")
    return f"{scheme}://{rest}"


def storage_address(place: str | Path) -> str | None:
    """The same for a run folder, whose files must be listed and written."""
    found = address(place)
    if found and found.startswith(tuple(f"{scheme}://" for scheme in _PAGES)):
        raise UserError(
            f"{found}: a run folder cannot lie behind web addresses, which give no list of files.",
            hint="Give a folder, or storage such as s3://bucket/run.",
        )
    return found


def local_path(place: str | Path) -> Path:
    """A folder of this machine, also where it is written as `file:///folder`."""
    found = _ADDRESS.fullmatch(str(place))
    return Path("/" + found[2]) if found and found[1].lower() in _HERE else Path(place)


def shown(place: str | Path, *inside: str) -> str:
    """A place, or what lies in it, as one writes it: pathlib folds the slashes of an address."""
    if found := address(place):
        return "/".join((found, *inside))
    return str(local_path(place).joinpath(*inside))


def refuse_address(path: Path) -> None:
    """Raise for an address where only a path of this machine will do."""
    if (found := _ADDRESS.fullmatch(str(path))) is None:
        return
    if found[1].lower() in _HERE:
        raise UserError(f"{path}: expected a path.", hint=f"Write it as {local_path(path)}.")
    raise UserError(
        f"{shown(path)}: expected a place on this machine.",
        hint="Run folders may lie in storage: -o of run, measure, audit and card.",
    )
