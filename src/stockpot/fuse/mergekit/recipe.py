"""From a mergekit recipe to the fusion of ours that makes the same model.

Every number is worked out tensor by tensor, as mergekit does, so the models' headers are read.
Where slices ask for it, members are stacks of layers from several models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stockpot.checkpoints.locate import locate
from stockpot.checkpoints.open import open_checkpoint
from stockpot.checkpoints.resolve import resolve
from stockpot.checkpoints.source import Source
from stockpot.checkpoints.stacked import StackedSource
from stockpot.errors import BadParameterError
from stockpot.fuse.foreign_recipe import ForeignRecipe
from stockpot.fuse.mergekit.document import Document, Input, Reference, Slice, parse
from stockpot.fuse.mergekit.methods import METHODS, REQUIRED, Method, Params
from stockpot.fuse.mergekit.settings import look_up
from stockpot.fuse.parameters import at_the_start
from stockpot.fuse.stacking import LAYER, the_stack

_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}
Opened = Mapping[Reference, Source]


class _Place(NamedTuple):
    """One tensor of the output: its slice, its depth there, its name in each input."""

    name: str
    slice: Slice
    depth: float
    own: tuple[str, ...]


def from_mergekit(recipe: Mapping[str, Any], *, where: str = "recipe") -> ForeignRecipe:
    """A mergekit recipe in our words."""
    text = str(recipe["merge_method"])
    if text not in METHODS:
        known = ", ".join(METHODS)
        raise BadParameterError(f"{where}: merge_method {text!r} is not supported. Known: {known}.")
    method = METHODS[text]
    document = parse(recipe, where)
    _check_counts(document, method, where)
    unknown = _unknown(document, method)
    opened = _open(document)
    places = _stack(document, opened, where) if document.stacked else _as_they_are(document, opened)
    params = _parameters(document, method, places, opened, where)
    members, base = _members(document, method, places, opened)
    options = {}
    if document.dtype is not None:
        kind = document.dtype.removeprefix("torch.")
        if kind not in _DTYPES:
            raise BadParameterError(
                f"{where}: dtype: expected one of {', '.join(_DTYPES)}, got {document.dtype}."
            )
        options["dtype"] = _DTYPES[kind]
    return ForeignRecipe(members, base, method.ours, params, options, (*unknown, *document.ignored))


def _ordered(one: Slice, method: Method) -> tuple[list[int], int | None]:
    """The numbers of the members among the inputs, and that of the base where there is one."""
    models = [item.model for item in one.inputs]
    base = models.index(one.base) if one.base in models else None
    rest = [number for number in range(len(models)) if number != base]
    if method.base in ("changes", "optional"):
        return rest, base
    if method.base == "first" and base is not None:
        return [base, *rest], None
    return list(range(len(models))), None


def _check_counts(document: Document, method: Method, where: str) -> None:
    least, most = method.models
    for one in document.slices:
        members, base = _ordered(one, method)
        if method.base in ("changes", "first") and one.base is None:
            raise BadParameterError(f"{where}: {document.method} needs a base_model.")
        if (
            method.base != "member"
            and one.base
            and one.base not in [item.model for item in one.inputs]
        ):
            raise BadParameterError(
                f"{where}: the base_model {one.base} must be among the sources of every slice."
            )
        if len(members) < least or (most is not None and len(members) > most):
            number = f"{least}" if most == least else f"at least {least}"
            also = " besides the base" if base is not None else ""
            listed = ", ".join(one.inputs[index].model.name for index in members)
            raise BadParameterError(
                f"{where}: {document.method} merges {number} model{'s' * (least != 1)}{also}, got "
                f"{len(members)}: {listed}."
            )
    if len({len(one.inputs) for one in document.slices}) > 1:
        raise BadParameterError(
            f"{where}: all slices must have one number of sources; slices of different numbers "
            "are not supported."
        )


def _unknown(document: Document, method: Method) -> list[str]:
    """Parameters that mergekit would pass over: unknown ones, and shared ones given to a model."""
    known = {*method.whole, *method.each}
    shared = [*document.shared, *(one.own for one in document.slices)]
    names = dict.fromkeys(key for settings in shared for key in settings)
    found = [f"parameters.{name} (no such parameter)" for name in names if name not in known]
    for item in (item for one in document.slices for item in one.inputs):
        for name in item.own:
            if name not in method.each:
                why = "mergekit reads it for all models" if name in known else "no such parameter"
                found.append(f"parameters.{name} of {item.model.name} ({why})")
    if any("int8_mask" in settings for settings in shared):
        found.append("parameters.int8_mask (it saves mergekit memory and changes no number)")
    return found


def _open(document: Document) -> dict[Reference, Source]:
    models = dict.fromkeys(item.model for one in document.slices for item in one.inputs)
    return {model: _open_one(model) for model in models}


def _open_one(model: Reference) -> Source:
    place = resolve(model.path, "weights", revision=model.revision)
    under = open_checkpoint(locate(place), label=str(Reference(model.path, model.revision)))
    if model.lora is None:
        return under
    adapter = resolve(model.lora.path, "weights", revision=model.lora.revision)
    return open_checkpoint(locate(adapter), label=str(model), base=under)


def _depths(names: Sequence[str]) -> dict[str, float]:
    """How deep each tensor lies in its stack of layers; what lies outside has the depth 0."""
    counts: dict[str, int] = {}
    for name in names:
        if match := LAYER.match(name):
            counts[match[1]] = max(counts.get(match[1], 0), int(match[2]) + 1)
    found = {}
    for name in names:
        match = LAYER.match(name)
        last = counts[match[1]] - 1 if match else 0
        found[name] = (int(match[2]) / last if last else 1.0) if match else 0.0
    return found


def _as_they_are(document: Document, opened: Opened) -> list[_Place]:
    """The tensors under every name that a model has for them: any may give the result its names."""
    (one,) = document.slices
    depths: dict[str, float] = {}
    for item in one.inputs:
        depths |= _depths(list(opened[item.model].tensors()))
    return [_Place(name, one, depth, (name,) * len(one.inputs)) for name, depth in depths.items()]


def _stack(document: Document, opened: Opened, where: str) -> list[_Place]:
    first, last = document.slices[0], document.slices[-1]
    names = list(opened[first.inputs[0].model].tensors())
    stack = the_stack(names, f"{where}: slices")
    inside = [name.removeprefix(f"{stack}.0.") for name in names if name.startswith(f"{stack}.0.")]
    loose = [name for name in names if not name.startswith(f"{stack}.")]
    width = len(first.inputs)
    places = [_Place(name, first, 0.0, (name,) * width) for name in loose if at_the_start(name)]
    number = 0
    for one in document.slices:
        layers = one.inputs[0].layers or 0
        for step in range(layers):
            depth = step / (layers - 1) if layers > 1 else 1.0
            for part in inside:
                own = tuple(f"{stack}.{(item.first or 0) + step}.{part}" for item in one.inputs)
                places.append(_Place(f"{stack}.{number}.{part}", one, depth, own))
            number += 1
    places += [_Place(name, last, 0.0, (name,) * width) for name in loose if not at_the_start(name)]
    for place in places:
        for item, name in zip(place.slice.inputs, place.own, strict=True):
            if name not in opened[item.model].tensors():
                raise BadParameterError(f"{where}: {item.model.name} has no {name}.")
    return places


def _parameters(
    document: Document, method: Method, places: Sequence[_Place], opened: Opened, where: str
) -> Params:
    """Our parameters: plain where all tensors agree, else by the tensor's name."""
    found: dict[str, dict[str, Any]] = {}
    for place in places:
        pairs = zip(place.slice.inputs, place.own, strict=True)
        known = ((opened[item.model].tensors(), name) for item, name in pairs)
        if not any(infos[name].dtype.is_floating_point for infos, name in known if name in infos):
            continue
        try:
            values = _values(document, method, place)
        except BadParameterError as problem:
            raise BadParameterError(f"{where}: {problem}") from None
        for key, value in values.items():
            found.setdefault(key, {})[place.name] = value
    params: Params = {}
    for key, by_name in found.items():
        distinct = list(by_name.values())
        plain = all(value == distinct[0] for value in distinct)
        params[key] = distinct[0] if plain else by_name
    return params


def _values(document: Document, method: Method, place: _Place) -> Params:
    shared = (place.slice.own, *document.shared)
    whole = {
        name: look_up(name, shared, place.name, place.depth, default)
        for name, default in method.whole.items()
    }
    members, _ = _ordered(place.slice, method)
    each = [
        {
            name: look_up(
                name,
                (place.slice.inputs[number].own, *shared),
                place.own[number],
                place.depth,
                default,
            )
            for name, default in method.each.items()
        }
        for number in members
    ]
    for values, whose in (
        (whole, "the merge"),
        *zip(each, (place.slice.inputs[number].model.name for number in members), strict=True),
    ):
        for name, value in values.items():
            if value is REQUIRED:
                raise BadParameterError(
                    f"parameters.{name}: expected a value for {whose} ({place.name}), got none."
                )
    return method.translate(whole, each)


def _members(
    document: Document, method: Method, places: Sequence[_Place], opened: Opened
) -> tuple[dict[str, Any], Any]:
    members, base = _ordered(document.slices[0], method)
    if not document.stacked:
        (one,) = document.slices
        found = {str(one.inputs[i].model): _spec(one.inputs[i].model, opened) for i in members}
        return found, None if base is None else _spec(one.inputs[base].model, opened)
    layers = sum(one.inputs[0].layers or 0 for one in document.slices)
    stacks = []
    for rank in range(len(members)):
        numbers = [_ordered(one, method)[0][rank] for one in document.slices]
        stacks.append(_stacked(document, numbers, places, opened, layers))
    bases = [_ordered(one, method)[1] for one in document.slices]
    under = [number for number in bases if number is not None]
    return (
        {stack.label: stack for stack in stacks},
        _stacked(document, under, places, opened, layers) if under else None,
    )


def _spec(model: Reference, opened: Opened) -> Any:
    """A place where the model lies in files as it is, else the opened adapter."""
    if model.lora is not None:
        return opened[model]
    return locate(resolve(model.path, "weights", revision=model.revision))


def _stacked(
    document: Document,
    numbers: Sequence[int],
    places: Sequence[_Place],
    opened: Opened,
    layers: int,
) -> StackedSource:
    """One input of every slice, put together."""
    chosen = {id(one): number for one, number in zip(document.slices, numbers, strict=True)}
    where: dict[str, tuple[Source, str]] = {}
    for place in places:
        number = chosen[id(place.slice)]
        where[place.name] = (opened[place.slice.inputs[number].model], place.own[number])
    label = "+".join(
        _span(one.inputs[number]) for one, number in zip(document.slices, numbers, strict=True)
    )
    return StackedSource(where, label=label, layers=layers)


def _span(item: Input) -> str:
    first, layers = item.first or 0, item.layers or 0
    return f"{item.model.name}[{first}:{first + layers}]"
