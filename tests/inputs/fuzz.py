"""Readers of foreign files, given spoilt ones for a while: `python tests/inputs/fuzz.py idx npz`.

Each target takes bytes that hypothesis made of a good file. It may take them or refuse them with a
`UserError`; anything else (another error, more than five seconds of work) is a find, which is made
small, printed, and ends the run with exit code 1. `make fuzz` runs every target for a minute; what
it found before is kept in `test_bad_data.py` and `test_bad_words.py`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
from kindly import unkind
from spoilt import arrays
from test_bad_data import loading
from test_bad_words import RECIPE

from stockpot.fuse.foreign import read_foreign
from stockpot.recipe import load_recipe
from stockpot.results.store import read_result

MERGEKIT = b"""merge_method: ties
models:
  - model: a
    parameters: {density: 0.5, weight: 0.5}
  - model: b
    parameters: {density: [0.1, 0.9], weight: [{filter: mlp, value: 1}, {value: 0.5}]}
slices: null
base_model: a
dtype: float32
"""
POOL = b"""_target_: fusion_bench.modelpool.CLIPVisionModelPool
models:
  _pretrained_: base
  x: {pretrained_model_name_or_path: a}
  y: ${models.x}
"""
_WORDS = [
    b"", b"\0", b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"null", b"nan", b"1e999", b"-1", b"9" * 30,
    b"[", b"{", b"[[[[[[[[", b": ", b"- ", b"&a [*a]", b"*a", b"<<: *a", b"\n", b"\t", b"\x1b[31m",
    b"!!python/name:os.system", b"2024-99-99", b'"', b"'", b"${a}", b"../",
]  # fmt: skip


def changed(good: list[bytes]) -> st.SearchStrategy[bytes]:
    """One of these files with a few stretches replaced, or cut."""
    part = st.one_of(st.binary(max_size=8), st.sampled_from(_WORDS))
    edit = st.tuples(st.floats(0, 1), st.integers(0, 40), part)

    def apply(found: bytes, edits: list[tuple[float, int, bytes]], length: float) -> bytes:
        data = bytearray(found)
        for place, width, new in edits:
            # Heads of files are short and say most.
            at = int(place * len(data)) if width % 2 else int(place * min(len(data), 200))
            data[at : at + width] = new
        return bytes(data[: int(length * len(data))])

    cut = st.one_of(st.just(1.0), st.just(1.0), st.floats(0, 1))
    return st.builds(apply, st.sampled_from(good), st.lists(edit, min_size=1, max_size=4), cut)


def _arrays(name: str) -> tuple[list[bytes], Callable[[bytes, Path], Callable[[], object]]]:
    return [arrays()[name]], lambda data, folder: loading(name, data)[1](folder)


def _file(
    name: str, read: Callable[[Path], object]
) -> Callable[[bytes, Path], Callable[[], object]]:
    def prepare(data: bytes, folder: Path) -> Callable[[], object]:
        (folder / name).write_bytes(data)
        return lambda: read(folder / name)

    return prepare


def _weights(path: Path) -> None:
    from stockpot.checkpoints.safetensors_file import SafetensorsSource

    source = SafetensorsSource((path,), label="fuzz", folder=None)
    for name in source.tensors():
        source.read(name)


def _results() -> list[bytes]:
    folder = Path(__file__).parent.parent / "results" / "version_1"
    return [path.read_bytes() for path in sorted(folder.rglob("*.json"))[:4]]


def _result(path: Path) -> None:
    cell = read_result(path)
    for name in cell.outcomes:
        cell.outcome(name)


TARGETS: dict[str, Callable[[], tuple[list[bytes], Callable[[bytes, Path], Callable[[], object]]]]]
TARGETS = {
    "recipe": lambda: ([RECIPE.encode()], _file("r.yaml", load_recipe)),
    "foreign_yaml": lambda: ([MERGEKIT, POOL], _file("r.yaml", read_foreign)),
    "safetensors": lambda: ([arrays()["a.safetensors"]], _file("a.safetensors", _weights)),
    "idx": lambda: _arrays("t-images-idx3-ubyte.gz"),
    "plain_idx": lambda: _arrays("t-images-idx3-ubyte"),
    "npz": lambda: _arrays("packed.npz"),
    "parquet": lambda: _arrays("a.parquet"),
    "results": lambda: (_results(), _file("r.json", _result)),
}


@contextmanager
def _emptied(folder: Path) -> Iterator[Path]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder


def fuzz(name: str, seconds: float) -> int:
    """Try a target for so long; how many files were tried. Raises at a find."""
    good, prepare = TARGETS[name]()
    count, run, start = 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        while time.monotonic() - start < seconds:
            run += 1

            @seed(run)
            @settings(
                max_examples=300, deadline=None, database=None,
                suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
            )  # fmt: skip
            @given(changed(good))
            def once(data: bytes) -> None:
                nonlocal count
                count += 1
                with _emptied(Path(place) / "f") as folder:
                    problem = unkind(prepare(data, folder), folder)
                assert problem in ("", "it was taken"), problem

            once()
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], default=[])
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in given.targets or TARGETS:
        count = fuzz(name, given.seconds)
        print(f"{name}: {count} files in {given.seconds:g} s, each taken or refused kindly")


if __name__ == "__main__":
    main()
