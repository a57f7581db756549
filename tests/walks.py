"""How far one has to read: the files and the deepest stack of four walks through the house.

    python tests/walks.py [WALK]       # with a name, also which files and which stack

Each walk is one command, from `main` on, in a process of its own: one image through a corruption
measure, tensors through a fusion, one training step, a small recipe. Counted are the files of
`stockpot` of which a function runs, and the functions of `stockpot` that stand on one another at
the deepest moment (with those of other packages between them left out). The bodies of modules and
classes do not count: an import is not a step of the walk. `PYTHONPATH=OTHER/src` counts the sources
of another checkout in the same way.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import stockpot

ROOT = Path(stockpot.__file__).parent
RECIPE = """\
version: 1
data: {few: {dataset: icons, split: test, limit: 1}}
models: {one: {load: icons-vit-plain}, two: {load: icons-vit-colour}}
fuse: {soup: {method: average, models: [one, two]}}
measure: {models: [soup], with: [{measure: clean, data: few}]}
report: {title: A walk}
"""
WALKS = {
    "measure": "measure icons-resnet --data icons --limit 1 --with corruption"
    " -p corruptions=gaussian_noise -p severities=1-1 -o {out} --device cpu",
    "fuse": "fuse ties icons-vit-plain icons-vit-colour --base icons-vit -o {out}",
    "harden": "harden counterfactual icons-vit --data icons --limit 4"
    " -p epochs=1 -p batch_size=4 -o {out} --device cpu",
    "run": "run {recipe} -o {out}",
}


@dataclass
class Walk:
    """What a profiler saw: files, and the longest stack, outermost first."""

    files: set[str] = field(default_factory=set)
    deepest: list[str] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not counted(frame.f_code):
            return
        self.files.add(shown(frame.f_code.co_filename))
        stack: list[CodeType] = []
        above: FrameType | None = frame
        while above is not None:
            if counted(above.f_code):
                stack.append(above.f_code)
            above = above.f_back
        if len(stack) > len(self.deepest):
            self.deepest = [f"{shown(c.co_filename)}: {c.co_qualname}" for c in reversed(stack)]


def counted(code: CodeType) -> bool:
    """Whether this is a function of ours; modules and class bodies are not optimised code."""
    path = code.co_filename
    ours = path.startswith(f"{ROOT}/") and path.endswith(".py")  # a template is no step either
    return ours and bool(code.co_flags & inspect.CO_OPTIMIZED)


def shown(path: str) -> str:
    return str(Path(path).relative_to(ROOT))


def take(name: str) -> Walk:
    """Run one walk in this process, which should have run nothing of stockpot yet."""
    from stockpot.cli.main import main as command

    walk = Walk()
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        recipe = Path(place) / "walk.yaml"
        recipe.write_text(RECIPE, encoding="utf-8")
        words = WALKS[name].format(out=f"{place}/out", recipe=recipe).split()
        sys.argv = ["stockpot", *words]
        sys.setprofile(walk)
        try:
            command()
        except SystemExit as end:
            if end.code:
                raise
        finally:
            sys.setprofile(None)
    return walk


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("walk", nargs="?", choices=WALKS)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.walk:
        walk = take(options.walk)
        found = {"files": sorted(walk.files), "deepest": walk.deepest}
        print(
            json.dumps(found) if options.json else "\n".join([*found["files"], "", *walk.deepest])
        )
        return
    print("| walk | files | deepest |\n|---|---|---|")
    for name in WALKS:
        command = [sys.executable, __file__, name, "--json"]
        said = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        found = json.loads(said.stdout)
        print(f"| {name} | {len(found['files'])} | {len(found['deepest'])} |")


if __name__ == "__main__":
    main()
