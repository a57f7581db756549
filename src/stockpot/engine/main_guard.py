"""Scripts that start processes: each process reads the script anew, and must not run it anew."""

from __future__ import annotations

import ast
import multiprocessing
import os
import sys
from pathlib import Path
from types import FrameType

from stockpot.errors import UserError

NO_GUARD = 97
"""Exit code of a worker that has come to the call that started it."""


def check_main_guard() -> None:
    """Refuse a call from the open lines of a script, which every worker would make again."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # A worker reading its parent's script has come to the same call, on a way that the parent
        # did not see (out of a thread, say): it ends, and the parent tells by its exit code.
        os._exit(NO_GUARD)
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    spec = getattr(main, "__spec__", None)
    # A shell, a notebook or `python -c` is not read again; nor is a package's `__main__`.
    if main is None or file is None or (spec and spec.name.endswith("__main__")):
        return
    if not Path(file).is_file():
        raise UserError(
            f"{file}: several processes each read the script, and this one is no file.",
            hint="Save it as one, or take engine serial.",
        )
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals is main.__dict__ and frame.f_code.co_name == "<module>":
            if not _is_guarded(Path(file), frame.f_lineno):
                raise no_guard(f"{file}, line {frame.f_lineno}")
            return
        frame = frame.f_back


def no_guard(where: str = "") -> UserError:
    """What a script is told whose workers would make its call again."""
    where = where or getattr(sys.modules.get("__main__"), "__file__", None) or "this script"
    return UserError(
        f"{where}: with several processes each of them reads this script, and would make this "
        "call again.",
        hint='Put the call under `if __name__ == "__main__":`.',
    )


def _is_guarded(file: Path, line: int) -> bool:
    """Whether a line of a script runs only where it is the program."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return True  # not a script that could be read again either
    return any(
        isinstance(node, ast.If)
        and "__name__" in {each.id for each in ast.walk(node.test) if isinstance(each, ast.Name)}
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in tree.body
    )
