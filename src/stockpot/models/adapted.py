"""A LoRA adapter or a small change as a model: merged into its base, for as long as the process.

Whatever loads, names or hashes a model folder then needs to know nothing of adapters.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stockpot.checkpoints.folder import copy_companions
from stockpot.checkpoints.locate import ON_A_BASE, base_of_adapter, locate
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.resolve import Resolved, resolve
from stockpot.checkpoints.write import ShardWriter
from stockpot.errors import BadCheckpointError, BadParameterError
from stockpot.models.config import adapter_config

_SHARD = 5_000_000_000


def is_adapter(place: Resolved) -> bool:
    """Whether a source is a folder with an adapter in it, or a change of a base that is small."""
    return place.has_files and place.kind != "file" and adapter_config(place.local()) is not None


def adapted(place: Resolved, base: str | Path | None = None) -> Resolved:
    """The model that an adapter makes of its base; anything else as it is.

    Args:
        place: where the adapter lies, or any other model.
        base: what the adapter is applied to; by default the model that its config names.
    """
    config = adapter_config(place.local()) if is_adapter(place) else None
    if config is None:
        if base is not None:
            raise BadParameterError(
                f"{place.text}: base belongs to a LoRA adapter, and this is a whole model."
            )
        return place
    own = locate(place)
    home = resolve(base_of_adapter(own) if base is None else base, "weights").local()
    under = locate(home)
    if under.format in ON_A_BASE:
        raise BadCheckpointError(
            f"{place.text}: its base {under.label} is a change of a base itself."
        )
    files = (*own.files, config, *under.files)
    state = tuple((path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    merged = _merged(place.local(), home, state)
    return replace(place, kind="folder", path=Path(merged.name) / "model", passing=True)


@lru_cache(maxsize=4)  # a run takes its models one after the other; an older folder is removed
def _merged(adapter: Path, base: Path, state: Any) -> TemporaryDirectory[str]:
    under = locate(base)
    source = open_checkpoint(adapter, base=open_checkpoint(under))
    if under.folder is None or not (under.folder / "config.json").is_file():
        raise BadCheckpointError(
            f"{under.label}: an adapter's base needs its config.json: expected a model folder."
        )
    place = TemporaryDirectory(prefix="stockpot-adapted-")
    folder = Path(place.name) / "model"
    folder.mkdir()
    with ShardWriter(folder, source.tensors(), max_shard=_SHARD) as writer:
        for name in source.tensors():
            writer.write(name, source.read(name))
    own = (adapter / "config.json").is_file()
    copy_companions(adapter if own else under.folder, folder)
    return place
