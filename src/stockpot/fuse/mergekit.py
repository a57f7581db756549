"""Recipes of mergekit, in our words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stockpot.errors import BadParameterError
from stockpot.fuse.foreign_recipe import ForeignRecipe

# mergekit's method -> ours, the parameters that make ours compute the same, and the names of
# its numbers in our words. A name that ends in [] is one number per member; reduce? is the mean
# when true and the sum when false.
_MERGEKIT: dict[str, tuple[str, dict[str, Any], dict[str, str]]] = {
    "linear": ("weighted", {"normalize": True}, {"weight": "weights[]", "normalize": "normalize"}),
    "slerp": ("slerp", {}, {"t": "t"}),
    "task_arithmetic": (
        "task_arithmetic",
        {"scale": 1.0},
        {"weight": "weights[]", "lambda": "scale", "normalize": "normalize"},
    ),
    "ties": (
        "ties",
        {"scale": 1.0, "scope": "tensor", "reduce": "mean", "density": 1.0},
        {"weight": "weights[]", "density": "density", "lambda": "scale", "normalize": "reduce?"},
    ),
    "dare_linear": (
        "dare",
        {"scale": 1.0, "merge": "sum", "rescale": "l1", "density": 1.0},
        {"weight": "weights[]", "density": "density", "lambda": "scale"},
    ),
    "dare_ties": (
        "dare",
        {"scale": 1.0, "merge": "elect", "reduce": "sum", "rescale": "l1", "density": 1.0},
        {"weight": "weights[]", "density": "density", "lambda": "scale"},
    ),
    "della": (
        "della",
        {"scale": 1.0, "rescale": "l1", "density": 1.0},
        {"weight": "weights[]", "density": "density", "epsilon": "epsilon", "lambda": "scale"},
    ),
    "della_linear": (
        "della",
        {"scale": 1.0, "elect": False, "rescale": "l1", "density": 1.0},
        {"weight": "weights[]", "density": "density", "epsilon": "epsilon", "lambda": "scale"},
    ),
    "breadcrumbs": (
        "breadcrumbs",
        {"scale": 1.0, "gamma": 0.01, "density": 1.0},
        {"weight": "weights[]", "density": "density", "gamma": "gamma", "lambda": "scale"},
    ),
    "breadcrumbs_ties": (
        "breadcrumbs",
        {"scale": 1.0, "gamma": 0.01, "elect": True, "density": 1.0},
        {"weight": "weights[]", "density": "density", "gamma": "gamma", "lambda": "scale"},
    ),
    "model_stock": ("model_stock", {}, {}),
    "karcher": ("karcher", {}, {"max_iter": "steps", "tol": "tol"}),
    "sce": ("sce", {"density": 1.0}, {"select_topk": "density"}),
}
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}


def from_mergekit(recipe: Mapping[str, Any], *, where: str = "recipe") -> ForeignRecipe:
    """A mergekit recipe with `models`, in our words."""
    method = str(recipe["merge_method"])
    if method not in _MERGEKIT:
        known = ", ".join(_MERGEKIT)
        raise BadParameterError(
            f"{where}: merge_method {method!r} is not supported. Known: {known}."
        )
    entries = recipe.get("models")
    if not entries:
        raise BadParameterError(
            f"{where}: expected `models`; slices and modules (layer stacking) are not supported."
        )
    ours, fixed, renamed = _MERGEKIT[method]
    base = _reference(recipe.get("base_model"))
    listed = [
        (_reference(entry["model"]) or "", entry.get("parameters") or {}) for entry in entries
    ]
    # mergekit's slerp and linear count the base among the models when it is listed there.
    if ours not in ("weighted", "slerp", "karcher"):
        listed = [(name, own) for name, own in listed if name != base]
    elif ours == "slerp" and base is not None:
        listed.sort(key=lambda item: item[0] != base)
        if base not in {name for name, _ in listed}:
            listed.insert(0, (base, {}))
        base = None
    else:
        base = None
    params, ignored = _parameters(recipe.get("parameters") or {}, listed, fixed, renamed)
    options: dict[str, Any] = {}
    out_dtype = recipe.get("out_dtype") or recipe.get("dtype")
    if out_dtype in _DTYPES:
        options["dtype"] = _DTYPES[out_dtype]
    used = {"merge_method", "models", "base_model", "parameters", "dtype", "out_dtype"}
    ignored += [f"{key} (does not apply here)" for key in recipe if key not in used]
    members = {name: name for name, _ in listed}
    return ForeignRecipe(members, base, ours, params, options, tuple(ignored))


def _reference(model: Any) -> str | None:
    if isinstance(model, Mapping):
        model = model.get("model", model)
        return str(model["path"] if isinstance(model, Mapping) else model)
    return None if model is None else str(model)


def _parameters(
    shared: Mapping[str, Any],
    listed: list[tuple[str, Mapping[str, Any]]],
    fixed: Mapping[str, Any],
    renamed: Mapping[str, str],
) -> tuple[dict[str, Any], list[str]]:
    params = dict(fixed)
    ignored = []
    names = dict.fromkeys([*shared, *(key for _, own in listed for key in own)])
    for name in names:
        target = renamed.get(name)
        if target is None:
            ignored.append(f"parameters.{name} (no counterpart)")
            continue
        values = [_schedule(own.get(name, shared.get(name))) for _, own in listed]
        if target.endswith("[]"):
            if any(value is None for value in values):
                raise BadParameterError(f"parameters.{name}: expected a value for every model.")
            params[target.removesuffix("[]")] = values
        else:
            given = [value for value in values if value is not None]
            if any(value != given[0] for value in given):
                ignored.append(f"parameters.{name} (one value for all members: {given[0]!r})")
            if target == "reduce?":
                params["reduce"] = "mean" if given[0] else "sum"
            else:
                params[target] = given[0]
    return params, ignored


def _schedule(value: Any) -> Any:
    """mergekit's filters, `[{filter: text, value: v}, ...]`, as globs."""
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        globs: dict[str, Any] = {}
        for item in value:
            text = item.get("filter")
            globs.setdefault("*" if text in (None, "*") else f"*{text}*", item["value"])
        return globs
    return value
