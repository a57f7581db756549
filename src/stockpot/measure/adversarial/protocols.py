"""Named ways to measure accuracy under attack: which norms, which radii, which attack.

`soups-*` are the evaluations of "Seasoning Model Soups" (arXiv:2302.10164): APGD with DLR in l_inf
and l_2 and cross-entropy in l_1; the strong one targets classes and restarts. Whether the paper's
l_1 attack used several radii is not said; here it does, which is the stronger choice.

`robustbench*` are the boards of RobustBench (arXiv:2010.09670): AutoAttack's standard version to
the letter on the 10,000 test images of CIFAR-10 or CIFAR-100 (l_inf 8/255, l_2 0.5), or on 5,000
fixed images of ImageNet (l_inf 4/255).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from stockpot.attack.threat import (
    L1,
    L2,
    Linf,
    Radii,
    Threat,
    Threats,
    listed,
    parse_threats,
)
from stockpot.datasets.dataset import Dataset
from stockpot.errors import BadParameterError, UnknownNameError
from stockpot.types import Check, Together


@dataclass(frozen=True)
class Protocol:
    """A method, its threats, and parameters for all of them or for one norm."""

    name: str
    method: str
    threats: tuple[Threat, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    by_norm: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    images: int | None = None
    """How many images the published numbers stand on."""
    classes: tuple[int, ...] = ()
    """How many classes the data of the published numbers have."""

    def settings(self, norm: str) -> dict[str, Any]:
        """The attack's parameters under one norm."""
        return {**self.params, **self.by_norm.get(norm, {})}

    def notes(self, data: Dataset) -> list[str]:
        """Where the data is not what the published numbers stand on."""
        lines = []
        if self.images is not None and len(data) != self.images:
            lines.append(
                f"{self.name}: published numbers stand on {self.images} images, these on "
                f"{len(data)}"
            )
        if self.classes and len(data.classes) not in self.classes:
            wanted = " or ".join(map(str, self.classes))
            lines.append(
                f"{self.name}: its radius is that of data with {wanted} classes, this has "
                f"{len(data.classes)}"
            )
        return lines


_CIFAR = (Linf("8/255"), L2("128/255"), L1("12"))
_IMAGENET = (Linf("4/255"), L2("4"), L1("255"))
_SOUPS = {
    "linf": {"loss": "dlr"},
    "l2": {"loss": "dlr"},
    "l1": {"loss": "ce", "radii": "multi"},
}
_STRONG = {
    "linf": {"loss": "dlr_targeted"},
    "l2": {"loss": "dlr_targeted"},
    "l1": {"loss": "ce", "radii": "multi"},
}
_STANDARD = {"version": "standard", "steps": 100, "queries": 5000, "patience": 0}


def _board(name: str, ball: Threat, *, images: int, classes: tuple[int, ...]) -> Protocol:
    return Protocol(name, "autoattack", (ball,), _STANDARD, images=images, classes=classes)


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("soups-cifar", "apgd", _CIFAR, {"steps": 40}, _SOUPS),
        Protocol("soups-imagenet", "apgd", _IMAGENET, {"steps": 40}, _SOUPS),
        Protocol("soups-strong", "apgd", _CIFAR, {"steps": 100, "restarts": 5}, _STRONG),
        Protocol(
            "autoattack-standard", "autoattack", (Linf("8/255"), L2("0.5"), L1("12")), _STANDARD
        ),
        _board("robustbench", Linf("8/255"), images=10_000, classes=(10, 100)),
        _board("robustbench-l2", L2("0.5"), images=10_000, classes=(10, 100)),
        _board("robustbench-imagenet", Linf("4/255"), images=5_000, classes=(1000,)),
    )
}


def named_protocol(name: str) -> Protocol:
    """The protocol of that name."""
    if name not in PROTOCOLS:
        raise UnknownNameError("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]


def threats_of(
    protocol: Protocol, norms: str | tuple[str, ...], eps: str | tuple[str | float, ...]
) -> Threats:
    """The threats that are asked for: the protocol's, some of them, or others with their radii."""
    known: dict[str, Threat] = {member.norm: member for member in protocol.threats}
    names = listed(norms) if norms != "all" else list(known)
    if listed(eps):
        return parse_threats(names, eps)
    missing = [name for name in names if name not in known]
    if missing or not names:
        raise BadParameterError(
            f"norms: {protocol.name} has {', '.join(known)}, got {', '.join(names) or 'none'}.",
            hint="Give eps as well to use another norm.",
        )
    return Threats(tuple(known[name] for name in names))


def _fit_protocol(eps: Any, others: dict[str, Any]) -> None:
    if "protocol" in others and "norms" in others:
        threats_of(named_protocol(others["protocol"]), others["norms"], eps)


ProtocolName = Annotated[str, Check(lambda name: named_protocol(str(name)).name)]
"""One of the named protocols."""
ProtocolRadii = Annotated[Radii, Together(_fit_protocol)]
"""One radius for each norm, where the protocol's are not meant."""
