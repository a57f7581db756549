"""Named ways to measure adversarial robustness: which norms, which radii, which attack.

`soups-*` are the evaluations of "Seasoning Model Soups" (arXiv:2302.10164): APGD with DLR in l_inf
and l_2 and cross-entropy in l_1; the strong one targets classes and restarts. Whether the paper's
l_1 attack used several radii is not said; here it does, which is the stronger choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from stockpot.attack.threat import L1, L2, Linf, Threat
from stockpot.errors import UnknownNameError
from stockpot.types import Check


@dataclass(frozen=True)
class Protocol:
    """A method, its threats, and parameters for all of them or for one norm."""

    name: str
    method: str
    threats: tuple[Threat, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    by_norm: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def settings(self, norm: str) -> dict[str, Any]:
        """The attack's parameters under one norm."""
        return {**self.params, **self.by_norm.get(norm, {})}


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

PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("soups-cifar", "apgd", _CIFAR, {"steps": 40}, _SOUPS),
        Protocol("soups-imagenet", "apgd", _IMAGENET, {"steps": 40}, _SOUPS),
        Protocol("soups-strong", "apgd", _CIFAR, {"steps": 100, "restarts": 5}, _STRONG),
        Protocol("autoattack-standard", "autoattack", (Linf("8/255"), L2("0.5"), L1("12"))),
        Protocol("robustbench", "autoattack", (Linf("8/255"),)),
    )
}


def named_protocol(name: str) -> Protocol:
    """The protocol of that name."""
    if name not in PROTOCOLS:
        raise UnknownNameError("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]


ProtocolName = Annotated[str, Check(lambda name: named_protocol(str(name)).name)]
"""One of the named protocols."""
