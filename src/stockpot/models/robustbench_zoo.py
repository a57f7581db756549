"""Models of RobustBench's zoo by their names there, where the package is installed.

`robustbench:cifar10/Linf/Carmon2019Unlabeled` names dataset, threat and model as the zoo's own
folders do; `robustbench:Carmon2019Unlabeled` means CIFAR-10 and l_inf, as it does there.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from torch import nn

from stockpot.checkpoints.resolve import Resolved
from stockpot.datasets.fetch.cache import cache_dir
from stockpot.datasets.named.cifar10 import CLASSES as CIFAR10
from stockpot.datasets.stream.geometry import Interpolation
from stockpot.errors import BadCheckpointError, MissingDependencyError, UnknownNameError
from stockpot.models.classifier import Classifier, Origin
from stockpot.models.fingerprint import fingerprint_tensors
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

_INSTALL = "pip install git+https://github.com/RobustBench/robustbench"
_OUTPUTS = {"cifar10": 10, "cifar100": 100, "imagenet": 1000}
_THREATS = ("Linf", "L2", "corruptions")


class Entry(NamedTuple):
    """A model of the zoo."""

    dataset: str
    threat: str
    name: str


def load_robustbench(place: Resolved, *, folder: str = "", name: str = "") -> Classifier:
    """A model of RobustBench's zoo; it is fetched if its weights are not there.

    Args:
        place: `DATASET/THREAT/NAME`, or `NAME` for CIFAR-10 and l_inf.
        folder: where the weights lie or go, as `DATASET/THREAT/NAME.pt`; a folder of the cache.
        name: the name under which the model appears in results.
    """
    entry = parse_entry(place)
    zoo = _import("robustbench.model_zoo.models").model_dicts
    kinds = _import("robustbench.model_zoo.enums")
    known = zoo[kinds.BenchmarkDataset(entry.dataset)][kinds.ThreatModel(entry.threat)]
    if entry.name not in known:
        raise UnknownNameError(
            f"model of RobustBench's zoo for {entry.dataset} and {entry.threat}", entry.name, known
        )
    preprocess = _preprocess(place, entry, known[entry.name])
    try:
        module: nn.Module = _import("robustbench.utils").load_model(
            model_name=entry.name,
            model_dir=folder or str(cache_dir() / "robustbench"),
            dataset=entry.dataset,
            threat_model=entry.threat,
        )
    except (OSError, RuntimeError, ValueError, KeyError) as problem:
        reason = str(problem).strip().partition("\n")[0].rstrip(".")
        raise BadCheckpointError(
            f"{place.text}: RobustBench could not load it ({reason}).",
            hint="Give folder=DIR with DATASET/THREAT/NAME.pt in it where nothing can be fetched.",
        ) from problem
    numbers = tuple(str(index) for index in range(_OUTPUTS[entry.dataset]))
    classes = CIFAR10 if entry.dataset == "cifar10" else numbers
    identity = fingerprint_tensors(module.state_dict().items())
    origin = Origin(name or place.text, type(module).__name__, identity)
    return Classifier(module.eval(), preprocess, classes, origin)


def parse_entry(place: Resolved) -> Entry:
    """Read `DATASET/THREAT/NAME`."""
    parts = place.name.split("/")
    entry = Entry("cifar10", "Linf", parts[0]) if len(parts) == 1 else Entry(*(*parts, "")[:3])
    if len(parts) not in (1, 3) or not entry.name:
        raise BadCheckpointError(
            f"{place.text}: expected robustbench:DATASET/THREAT/NAME, such as "
            "robustbench:cifar10/Linf/Carmon2019Unlabeled."
        )
    if entry.dataset not in _OUTPUTS:
        raise UnknownNameError("dataset of RobustBench", entry.dataset, _OUTPUTS)
    if entry.threat not in _THREATS:
        raise UnknownNameError("threat of RobustBench", entry.threat, _THREATS)
    return entry


_SIDE = ImageSize(224, 224)
_FITS: dict[str | None, tuple[int | ImageSize, Interpolation]] = {
    "Res256Crop224": (256, "bilinear"),
    "BicubicRes256Crop224": (256, "bicubic"),
    "Res224": (_SIDE, "bilinear"),
}
"""How the zoo's preprocessings for ImageNet resize; all crop the centre to 224 px."""


def _preprocess(place: Resolved, entry: Entry, facts: Any) -> Preprocess:
    """Size alone: these models normalise pixels themselves."""
    none, one = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if entry.dataset != "imagenet":
        side = ImageSize(32, 32)
        return Preprocess(side, side, none, one, "bilinear")
    called = f"{entry.name.lower().replace('-', '_')}_imagenet_{entry.threat.lower()}"
    timm = _import("timm")
    if timm.is_model(called):
        made: Any = timm.create_model(called)
        # Some carry their normalisation before them.
        config: Any = (made.model if hasattr(made, "model") else made).default_cfg
        side = ImageSize(*config["input_size"][1:])
        resized = int(side.height / config["crop_pct"])
        return Preprocess(side, resized, none, one, config["interpolation"])
    if facts.get("preprocessing") not in _FITS:
        raise BadCheckpointError(
            f"{place.text}: its preprocessing {facts.get('preprocessing')!r} crops without "
            "resizing, which pictures of any size cannot be brought to.",
            hint="Load it with robustbench and give stockpot.attack the module and its pixels.",
        )
    resized_to, interpolation = _FITS[facts["preprocessing"]]
    return Preprocess(_SIDE, resized_to, none, one, interpolation)


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        what = "is not installed" if problem.name == "robustbench" else f"needs {problem.name}"
        raise MissingDependencyError(
            f"RobustBench's models need its package, which {what}: {problem}.",
            hint=f"Install it with: {_INSTALL}",
        ) from None
