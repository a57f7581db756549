"""Methods of FusionBench's configurations, in our words.

A method is a mapping with the class that runs it (`_target_`) and its settings. Those that are
known here are translated; of the others the class is named, and the user names a method of ours.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from stockpot.errors import BadParameterError, shortened

_SILENT = {
    "_target_", "_recursive_", "seed", "shuffle_order", "save_on_every_step",
    "evaluate_on_every_step", "num_ray_actors", "batch_size", "num_workers", "device",
    "upscaling_accelerator",
}  # fmt: skip
"""What says how that program runs and saves, or is read elsewhere."""


class Method(NamedTuple):
    """A method, its parameters, the members in their order, and what was not taken over."""

    name: str | None
    params: dict[str, Any]
    order: tuple[str, ...]
    ignored: tuple[str, ...]


def from_method(content: Mapping[str, Any], members: Sequence[str], where: str) -> Method:
    """Translate the method of a configuration, for members in the order of its pool."""
    target = str(content.get("_target_") or content.get("name") or "").rpartition(".")[2]
    known = _KNOWN.get(target)
    if known is None:
        said = f"method {target or '?'} (not translated: name one of ours)"
        return Method(None, {}, tuple(members), (said,))
    name, translate = known
    try:
        params, read = translate(content)
    except (KeyError, TypeError, ValueError) as problem:
        raise BadParameterError(
            f"{where}: method: {target}: {shortened(str(problem), 80)} is not what it takes."
        ) from None
    ignored = [
        f"method.{key}"
        for key, value in content.items()
        if key not in read and key not in _SILENT and value not in (None, "", False, [], {})
    ]
    order = list(members)
    if content.get("shuffle_order"):
        if content.get("seed") is None:
            ignored.append("method.shuffle_order (without a seed: the order is the pool's)")
        else:
            random.Random(int(content["seed"])).shuffle(order)  # as it shuffles after its seed
    return Method(name, params, tuple(order), tuple(ignored))


Translated = tuple[dict[str, Any], set[str]]
Translate = Callable[[Mapping[str, Any]], Translated]


def _named(**names: str) -> Translate:
    """Settings that mean the same under another name, theirs = ours."""

    def translate(content: Mapping[str, Any]) -> Translated:
        given = {ours: content[theirs] for theirs, ours in names.items() if theirs in content}
        return {key: value for key, value in given.items() if value is not None}, set(names)

    return translate


def _ties(content: Mapping[str, Any]) -> Translated:
    density = float(content.get("threshold", 20))
    params = {
        "preset": "fusionbench",
        "density": density / 100 if density > 1 else density,
        "scale": content["scaling_factor"],
        "reduce": content.get("merge_func", "sum"),
    }
    return params, {"threshold", "scaling_factor", "merge_func"}


def _dop(content: Mapping[str, Any]) -> Translated:
    names = _named(
        lr="lr", num_steps="steps", alpha="alpha", svd_epsilon="energy", svd_proj_space="space"
    )
    params, read = names(content)
    params["rule"] = "fusionbench"
    params["balance"] = "pareto" if content.get("mgda", True) else "fixed"
    if content.get("mgda", True):
        params["momentum"] = content.get("ema_beta", 0.99) if content.get("ema", True) else 0.0
    return params, read | {"mgda", "ema", "ema_beta"}


def _tatr(content: Mapping[str, Any]) -> Translated:
    names = _named(scaling_factor="scale", threshold_quantile="density", max_samples="examples")
    params, read = names(content)
    if content.get("zero_shot"):
        params["gradients"] = "changes"
    return params, read | {"zero_shot"}


def _first(content: Mapping[str, Any], otherwise: Any) -> Any:
    """Where Frank-Wolfe begins: the base, a file of merging weights, or what follows otherwise."""
    given = content.get("init_weight") or ""
    return {"base": 0.0, "": otherwise}.get(given, given)


def _fw_hard(content: Mapping[str, Any]) -> Translated:
    if content.get("merge_fn", "task_arithmetic") != "task_arithmetic":
        raise ValueError(f"merge_fn {content['merge_fn']!r}")
    names = _named(
        max_iters="steps", step_size="step_size", scaling_factor="scale", dataset_size="examples",
        granularity="layers",
    )  # fmt: skip
    params, read = names(content)
    params["init"] = _first(content, params.get("scale", 1.0))
    losses = {"cross_entropy": "labels", "entropy": "entropy"}
    params["loss"] = losses[content.get("loss_fn", "cross_entropy")]
    return params, read | {"init_weight", "loss_fn", "merge_fn", "max_num_models"}


def _fw_soft(content: Mapping[str, Any]) -> Translated:
    if content.get("ada_loss", "entropy_loss") != "entropy_loss":
        raise ValueError(f"ada_loss {content['ada_loss']!r}")
    names = _named(
        max_iters="steps", step_size="step_size", dataset_size="examples", granularity="layers",
        ada_iters="adapt_steps",
    )  # fmt: skip
    params, read = names(content)
    params["init"] = _first(content, 0.0)
    params["adapt_init"] = float(content["ada_coeff"])
    learns = content["merge_fn"] == "adamerging"
    params["merge"] = "adamerging" if learns else "task_arithmetic"
    return params, read | {"init_weight", "ada_coeff", "merge_fn", "ada_loss", "max_num_models"}


def _ada_svd(content: Mapping[str, Any]) -> Translated:
    params, read = _named(num_samples="examples", gate_k="gate_rank")(content)
    scale = content.get("scaling_factor")
    if scale is not None:
        params["weights" if isinstance(scale, list) else "scale"] = scale
    params["others"] = "average" if content.get("average_experts") else "base"
    return params, read | {"scaling_factor", "average_experts"}


def _rank_one(content: Mapping[str, Any]) -> Translated:
    names = _named(
        max_steps="steps", lr="lr", init_lambda="scale", rank_k="rank", batch_size="batch_size",
        router_hidden_layers="depth",
    )  # fmt: skip
    params, read = names(content)
    if int(content.get("select_k", -1)) > 0:
        params["top_k"] = content["select_k"]
    return params, read | {"name", "select_k", "optimizer", "devices", "svd_accelerator",
                           "use_grad_accumulate", "cache_dir", "fast_dev_run"}  # fmt: skip


_KNOWN: dict[str, tuple[str, Translate]] = {
    "SimpleAverageAlgorithm": ("average", _named()),
    "TaskArithmeticAlgorithm": ("task_arithmetic", _named(scaling_factor="scale")),
    "TiesMergingAlgorithm": ("ties", _ties),
    "OPCM": ("opcm", _named(alpha="alpha")),
    "OPCMForCLIP": ("opcm", _named(alpha="alpha")),
    "ContinualTaskArithmeticForCLIP": ("task_arithmetic", _named(scaling_factor="scale")),
    "DOPMerging": ("dop", _dop),
    "ContinualDOPForCLIP": ("dop", _dop),
    "TaskArithmeticWithTrustRegionForCLIP": ("tatr", _tatr),
    "FrankWolfeHardAlgorithm": ("fw_hard", _fw_hard),
    "FrankWolfeSoftAlgorithm": ("fw_soft", _fw_soft),
    "AdaSVDMergingForCLIPVisionModel": ("ada_svd", _ada_svd),
    "rankone_moe": ("rank_one_moe", _rank_one),
}
