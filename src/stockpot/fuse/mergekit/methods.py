"""mergekit's methods: which of ours computes the same, and its numbers in our words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stockpot.errors import BadParameterError

REQUIRED = object()
"""Stands where a parameter has no default."""

Each = list[dict[str, Any]]
Params = dict[str, Any]


@dataclass(frozen=True)
class Method:
    """One method of mergekit."""

    ours: str
    translate: Callable[[Params, Each], Params]
    """Its parameters and those of each model, for one tensor -> our parameters."""
    whole: Mapping[str, Any] = field(default_factory=dict)
    """The parameters of the merge and their defaults."""
    each: Mapping[str, Any] = field(default_factory=dict)
    """Those of every model."""
    base: Literal["changes", "optional", "first", "member"] = "member"
    """Whether it works on changes from the base, does so where there is one, takes the base as the
    first of two, or knows no base at all."""
    models: tuple[int, int | None] = (1, None)
    """How many models it takes, at least and at most, the base not counted where it works on
    changes."""


def _linear(whole: Params, each: Each) -> Params:
    return {"weights": _of(each, "weight"), "normalize": bool(whole["normalize"])}


def _slerp(whole: Params, each: Each) -> Params:
    return {"t": whole["t"]}


def _nuslerp(whole: Params, each: Each) -> Params:
    first, second = _of(each, "weight")
    total = first + second
    share = second / total if abs(total) >= 1e-6 else 0.5
    # mergekit calls the first axis rows; where a tensor is taken whole, it has no say.
    pieces = "first" if whole["nuslerp_row_wise"] else "last"
    return {"t": share, "along": "tensor" if whole["nuslerp_flatten"] else pieces}


def _multislerp(whole: Params, each: Each) -> Params:
    return {"weights": _of(each, "weight"), "normalize": bool(whole["normalize_weights"])}


def _nearswap(whole: Params, each: Each) -> Params:
    return {"distance": whole["t"]}


def _ram(whole: Params, each: Each) -> Params:
    plus = {"reinforce": whole["r"], "cap": whole["alpha"]} if "r" in whole else {}
    return {"tol": whole["epsilon"], **plus}


def _passthrough(whole: Params, each: Each) -> Params:
    (one,) = each
    return {"scale": 1.0 if one["scale"] is None else one["scale"]}


def _model_stock(whole: Params, each: Each) -> Params:
    if whole["filter_wise"]:
        raise BadParameterError("model_stock: filter_wise is not supported.")
    return {}


def _karcher(whole: Params, each: Each) -> Params:
    return {"steps": int(whole["max_iter"]), "tol": whole["tol"]}


def _sce(whole: Params, each: Each) -> Params:
    return {"density": whole["select_topk"]}


def _nothing(whole: Params, each: Each) -> Params:
    return {}


def _changes(whole: Params, each: Each, *, elect: bool, sparse: str | None) -> Params:
    """The family of task arithmetic: sparse changes, perhaps an election, a weighted sum."""
    params: Params = {"weights": _of(each, "weight"), "scale": whole["lambda"]}
    if elect:
        params["reduce"] = "mean" if whole["normalize"] else "sum"
    elif whole["normalize"]:
        total = sum(params["weights"])
        params["weights"] = [
            weight / (total if abs(total) >= 1e-8 else 1.0) for weight in params["weights"]
        ]
    if sparse is None:
        return params
    params["densities"] = _of(each, "density")
    if sparse in ("random", "ranked"):
        params["rescale"] = "l1" if whole["rescale"] else "none"
    elif whole["rescale"]:
        raise BadParameterError("rescale: is not supported for methods that trim by magnitude.")
    if sparse == "ranked":
        params["epsilons"] = _of(each, "epsilon")
    if sparse == "middle":
        params["gammas"] = _of(each, "gamma")
    return params


def _of(each: Each, name: str) -> list[float]:
    return [float(one[name]) for one in each]


def _family(
    ours: str,
    *,
    elect: bool = False,
    sparse: str | None = None,
    normalize: bool = False,
    rescale: bool = False,
    **fixed: Any,
) -> Method:
    fixed |= {"elect": elect} if ours in ("della", "breadcrumbs") else {}

    def translate(whole: Params, each: Each) -> Params:
        return {**fixed, **_changes(whole, each, elect=elect, sparse=sparse)}

    each = {"weight": REQUIRED, "density": 1.0}
    each |= {"gamma": 0.01} if sparse == "middle" else {}
    each |= {"epsilon": 0.15} if sparse == "ranked" else {}
    whole = {"normalize": normalize, "rescale": rescale, "lambda": 1.0, "int8_mask": False}
    return Method(ours, translate, whole, each, base="changes")


METHODS: dict[str, Method] = {
    "linear": Method("weighted", _linear, {"normalize": True}, {"weight": REQUIRED}),
    "slerp": Method("slerp", _slerp, {"t": REQUIRED}, base="first", models=(2, 2)),
    "nuslerp": Method(
        "nuslerp",
        _nuslerp,
        {"nuslerp_row_wise": False, "nuslerp_flatten": True},
        {"weight": REQUIRED},
        base="optional",
        models=(2, 2),
    ),
    "multislerp": Method(
        "multislerp",
        _multislerp,
        {"normalize_weights": True, "eps": 1e-8},
        {"weight": REQUIRED},
        base="optional",
    ),
    "passthrough": Method("passthrough", _passthrough, {}, {"scale": None}, models=(1, 1)),
    "task_arithmetic": _family("task_arithmetic"),
    "ties": _family("ties", elect=True, sparse="largest", normalize=True, scope="tensor"),
    "dare_linear": _family("dare", sparse="random", rescale=True, merge="sum"),
    "dare_ties": _family("dare", elect=True, sparse="random", rescale=True, merge="elect"),
    "della": _family("della", elect=True, sparse="ranked", normalize=True, rescale=True),
    "della_linear": _family("della", sparse="ranked", rescale=True),
    "breadcrumbs": _family("breadcrumbs", sparse="middle"),
    "breadcrumbs_ties": _family("breadcrumbs", elect=True, sparse="middle"),
    "model_stock": Method(
        "model_stock", _model_stock, {"filter_wise": False}, base="changes", models=(2, None)
    ),
    "karcher": Method("karcher", _karcher, {"max_iter": 10, "tol": 1e-5}),
    "sce": Method("sce", _sce, {"select_topk": 1.0, "int8_mask": False}, base="changes"),
    "arcee_fusion": Method("arcee_fusion", _nothing, base="changes", models=(1, 1)),
    "nearswap": Method("nearswap", _nearswap, {"t": REQUIRED}, base="changes", models=(1, 1)),
    "ram": Method("ram", _ram, {"epsilon": 1e-5}, base="changes"),
    "ramplus_tl": Method("ram", _ram, {"epsilon": 1e-5, "r": 0.1, "alpha": 0.2}, base="changes"),
}
