"""The process that reads one file: `python -m stockpot.checkpoints.pickles FILE OUT [KEY]`.

It writes the tensors as safetensors to OUT and one line of JSON about them. Nothing of the file is
run, and nothing that it names is imported; should a flaw of Python's own reader be met after all,
it is met here and not where a user's other data and keys are.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from stockpot.checkpoints.pickles.archive import Archive, read_archive, values_of
from stockpot.checkpoints.pickles.inert import CODES, TensorRecord
from stockpot.checkpoints.pickles.weights import find_weights
from stockpot.errors import UserError


def main(arguments: Sequence[str]) -> dict[str, Any]:
    """Read the file, write the tensors, and say what there was."""
    path, out, *key = arguments
    try:
        archive = read_archive(Path(path))
        found = find_weights(archive.content, key[0] if key else None)
        _write(Path(out), archive, found.tensors)
    except UserError as problem:
        text = problem.message if str(path) in problem.message else f"{path}: {problem.message}"
        return {"error": text, "hint": problem.hint}
    except (pickle.UnpicklingError, ArithmeticError, LookupError, TypeError, ValueError) as problem:
        reason = f"{type(problem).__name__}: {problem}".partition("\n")[0]
        return {"error": f"{path}: not a readable file of torch.save ({reason})."}
    except (BadZipFile, AttributeError, EOFError, RecursionError, MemoryError, OSError) as problem:
        reason = f"{type(problem).__name__}: {problem}".partition("\n")[0]
        return {"error": f"{path}: could not be read ({reason})."}
    return {
        "tensors": len(found.tensors),
        "taken": found.taken,
        "left_out": found.left_out,
        "others": found.others,
        "foreign": list(archive.foreign),
    }


def _write(out: Path, archive: Archive, tensors: dict[str, TensorRecord]) -> None:
    header: dict[str, Any] = {}
    end = 0
    for name, record in tensors.items():
        code, size = CODES[record.element]
        count = 1
        for length in record.shape:
            count *= length
        header[name] = {
            "dtype": code,
            "shape": list(record.shape),
            "data_offsets": [end, end := end + count * size],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with out.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for record in tensors.values():
            file.write(values_of(record, archive.stored(record.storage)))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1:])) + "\n")
