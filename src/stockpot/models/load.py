"""`load_model` and `load_for`: from a source (`checkpoints/resolve.py` lists them) to a classifier.

`load_model(source)` loads what stands for itself; `load_for(source, data)` also what must be told
the classes, and is what everything that has data calls.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stockpot.checkpoints.resolve import Resolved, resolve
from stockpot.datasets.words.conventions import words_of
from stockpot.datasets.words.given import lines_of
from stockpot.datasets.words.words import GIVEN, Spoken, Words
from stockpot.errors import BadCheckpointError, BadParameterError, UserError, did_you_mean
from stockpot.models.adapted import adapted
from stockpot.models.class_names import with_names
from stockpot.models.classifier import Classifier
from stockpot.models.config import has_text_head, kind_of, read_config
from stockpot.models.content import content_of, with_code
from stockpot.models.fingerprint import (
    fingerprint_files,
    fingerprint_model,
    fingerprint_shipped,
    fingerprint_tensors,
)
from stockpot.models.hub_processor import expected_processor
from stockpot.models.huggingface import load_huggingface, load_plain, load_to_ask
from stockpot.models.kept import kept
from stockpot.models.modules.folder import PLAIN_LOADERS, load_module
from stockpot.models.own_words import own_words_of
from stockpot.models.preprocess import Preprocess
from stockpot.models.prompts import Prompts
from stockpot.models.shipped.functions import from_function
from stockpot.models.shipped.kinds import SHIPPED
from stockpot.models.zero_shot import load_zero_shot, with_classes
from stockpot.models.zero_shot_beside import load_beside

Source = str | Path | Resolved | Classifier


class Vocabulary(NamedTuple):
    """Classes and templates by themselves, where there is no data to ask."""

    classes: tuple[str, ...]
    templates: tuple[str, ...] = ("a photo of a {}.",)
    vocabulary: Words | None = None


def load_model(source: Source | Callable[[Any], Any], **options: Any) -> Classifier:
    """Load a classifier from a zoo name, folder, file, address, hub id, factory, or another zoo.

    A dual encoder (CLIP, SigLIP) needs `classes=` for its zero-shot head. `revision` belongs to a
    hub id, `base` to a LoRA adapter, other options to the kind of source, and unknown ones are
    refused. A function from pixels to logits, or a torch module, is wrapped
    (`models/shipped/functions.py` has its options).
    """
    if isinstance(source, Classifier):
        return source
    options = with_names(options)
    if not isinstance(source, str | Path | Resolved):
        return from_function(source, **options)
    place = _place(source, options)
    return _checked(place, options)(place, **options)


def _checked(place: Resolved, options: Mapping[str, Any]) -> Callable[..., Classifier]:
    """What loads a place and knows these options."""
    loader = _loader(place)
    allowed = list(inspect.signature(loader).parameters)[1:]
    for key in options:
        if key not in allowed:
            known = [name for name in allowed if name != "name"]
            known += ["revision"] if place.kind == "hub" else []
            raise BadParameterError(
                f"{place.text}: unknown model option {key!r}.{did_you_mean(key, known)} "
                f"It takes: {', '.join(known)}."
            )
    return loader


def load_for(
    source: Source,
    data: Spoken,
    *,
    options: Mapping[str, Any] | None = None,
    prompts: Prompts | None = None,
    device: str | torch.device | None = None,
    keep: bool = False,
    state: str | None = None,
) -> Classifier:
    """Load a classifier for the classes of some data.

    A dual encoder gets a head of the data's classes in the words of `words_for`, a module made by
    fusion the head of the task that has these classes; a model with a head of its own stays as it
    is.

    Args:
        source: as for `load_model`.
        data: a dataset, or what else has classes and templates.
        options: those of `load_model`; `classes` and `templates` overrule the data's.
        prompts: for each class all its prompts, instead of templates, where a head is made.
        device: where to put it; by default where it is.
        keep: whether the last few models are kept for the next call, which then changes no more
            than the head of a dual encoder. Whoever asks for it must leave the weights alone.
        state: what tells the model from every other (`identify`), where that is known: its files
            are then not hashed again to find it among those that are kept.
    """
    if isinstance(source, Classifier):
        return source if device is None else source.to(device)
    own = with_names(options or {})
    place = _place(source, own)
    if "classes" not in own and (words := _words(place, data, own)) is not None:
        own.pop("templates", None)
        encodes_text = place.has_files and has_text_head(_config(place))
        if keep and encodes_text and not (prompts or "prompts" in own):
            encoder = _kept(
                place,
                _plain(own | {"classes": ["thing"]}),
                str(device or "cpu"),
                state or content_of(place, own) or "",
            )
            return with_classes(encoder, data.classes, words)
        own |= {"classes": data.classes, "names": words.names, "templates": words.templates}
        own |= {"prompts": prompts} if prompts and encodes_text else {}
    if keep and (now := state or content_of(place, own)) is not None:
        return _kept(place, _plain(own), str(device or "cpu"), now)
    model = load_model(place, **own)
    return model if device is None else model.to(device)


def load_ahead(
    source: Source, options: Mapping[str, Any], device: torch.device, state: str
) -> None:
    """Load a model as `load_for` will want to keep it, in whatever thread.

    Only what needs no other library is loaded so: transformers changes settings of the whole
    process while it loads. What cannot be loaded is left to `load_for`, which says why.

    Args:
        source: as for `load_for`.
        options: as there.
        device: as there.
        state: as there.
    """
    if isinstance(source, Classifier):
        return
    own = dict(options)

    def load() -> Classifier:
        found = load_plain(place, **own, device=device if device.type == "cuda" else None)
        if found is None:
            raise BadCheckpointError(f"{place.text} is for transformers to load.")
        # To ask each of its tensors to move takes Python a while, and most are there already.
        there = all(_is_on(value, device) for value in (*found.parameters(), *found.buffers()))
        found = (found if there else found.to(device)).eval()
        if device.type == "cuda":  # whoever asks it does so on another stream
            torch.cuda.current_stream(device).synchronize()
        return found

    try:
        place = _place(source, own)
        if place.has_files and set(own) <= {"name"} and _loader(place) is load_huggingface:
            kept((place, _plain(own), str(device), state), load)
    except (UserError, OSError):
        return


def _is_on(value: Tensor, device: torch.device) -> bool:
    return value.device.type == device.type and device.index in (None, value.device.index)


def expected_preprocess(source: Source, options: Mapping[str, Any]) -> Preprocess | None:
    """How a model will want its pictures, where its folder tells that without its weights."""
    if isinstance(source, Classifier):
        return source.preprocess
    try:
        found = expected_processor(_place(source, dict(options)))
        return None if found is None else Preprocess.of(found)
    except (UserError, OSError):
        return None  # loading it will say what is wrong


def words_for(
    source: Source, data: Spoken, options: Mapping[str, Any] | None = None
) -> Words | None:
    """What a model with a text tower is told of some data; none where it is told nothing.

    What a user gives wins, then the words that lie beside the model, which it was trained with,
    then those that are customary for the data.
    """
    if isinstance(source, Classifier):
        return None
    given = dict(options or {})
    return _words(_place(source, given), data, given)


def _words(place: Resolved, data: Spoken, options: Mapping[str, Any]) -> Words | None:
    if not takes_classes(place):
        return None
    words = words_of(data)
    if not words.chosen and place.has_files:
        own = own_words_of(place.local(), data.classes, options.get("dual_encoder"))
        words = own or words
    if "templates" in options:
        words = Words(words.names, lines_of(options["templates"], "templates"), GIVEN)
    return words


def takes_classes(source: Source) -> bool:
    """Whether the classes decide the head: of a dual encoder, its tower, or a fused module."""
    if isinstance(source, Classifier):
        return False
    place = _place(source, {})
    if not place.has_files:
        return place.kind == "open_clip"
    config = _config(place)
    return has_text_head(config) or kind_of(config) == "module"


def _place(source: str | Path | Resolved, options: dict[str, Any]) -> Resolved:
    """What a source means, an adapter merged into its base; takes the options that decide it."""
    place = resolve(source, revision=options.pop("revision", None))
    return adapted(place, options.pop("base", None))


def _loader(place: Resolved) -> Callable[..., Classifier]:
    if place.kind == "timm" or (place.has_files and kind_of(_config(place)) == "timm"):
        from stockpot.models.extras import load_timm

        return load_timm
    if place.kind == "open_clip":
        from stockpot.models.extras import load_open_clip

        return load_open_clip
    if place.kind == "robustbench":
        from stockpot.models.robustbench_zoo import load_robustbench

        return load_robustbench
    if place.kind in SHIPPED:
        return SHIPPED[place.kind]()
    if place.kind == "factory":
        from stockpot.models.factory import load_factory

        return load_factory
    return PLAIN_LOADERS.get(kind_of(_config(place)), load_module)


def _config(place: Resolved) -> dict[str, Any]:
    return read_config(place.local())


def _plain(options: dict[str, Any]) -> str:
    return json.dumps(options, sort_keys=True, default=str)


def _kept(place: Resolved, options: str, device: str, state: str) -> Classifier:
    """The model from memory, unless its files have changed since it was loaded."""

    def load() -> Classifier:
        given = json.loads(options)
        loader = _checked(place, given)
        if loader is load_zero_shot:
            return load_beside(place, torch.device(device), **given)
        loader = load_to_ask if loader is load_huggingface else loader
        return loader(place, **given).to(device).eval()

    return kept((place, options, device, state), load)


def identify(source: Source, options: Mapping[str, Any] | None = None) -> str:
    """The sha256 that tells this model from every other."""
    if isinstance(source, Classifier):
        # Weights in memory may have changed since they were loaded; a model that can only be
        # asked has none.
        held = source.state_dict()
        known = fingerprint_tensors(held.items()) if held else source.origin.fingerprint
        whole = f"{known}:{source.behind}".encode()
        return hashlib.sha256(whole).hexdigest() if source.behind else known
    given = dict(options or {})
    place = _place(source, given)
    if place.has_files:
        return fingerprint_model(place.local(), given.get("dual_encoder"))
    if place.path is not None:
        return fingerprint_shipped(place.path)
    weights = given.get("weights")
    if weights and Path(weights).is_file():
        return with_code(place, fingerprint_files([Path(weights)]))
    if place.kind == "open_clip":
        given.setdefault("classes", ("thing",))  # its identity is that of the towers alone
    return load_model(place, **given).origin.fingerprint
