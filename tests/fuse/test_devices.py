"""Where a fusion computes, and that it makes no difference to what is drawn or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from stockpot.checkpoints.record import read_record
from stockpot.checkpoints.source import TensorInfo
from stockpot.errors import BadCheckpointError
from stockpot.fuse.fuser import Slab
from stockpot.fuse.job import prepare
from stockpot.fuse.request import Options, make_request
from stockpot.fuse.run import fuse
from stockpot.fuse.sparse.chance import uniform
from stockpot.fuse.stream import STRETCH

CPU = torch.device("cpu")


def slab(start: int = 0, name: str = "w") -> Slab:
    def never(*_: Any) -> Tensor:
        raise AssertionError("draws read no values")

    return Slab(name, TensorInfo((1,), torch.float32), never, 1, STRETCH, start, start + 1)


def draws(start: int, count: int, device: torch.device = CPU, **other: Any) -> Tensor:
    settings = {"seed": 0, "member": 0} | other
    return uniform(slab(start), count, device=device, **settings)


def test_draws_do_not_depend_on_the_cut() -> None:
    whole = draws(0, 2 * STRETCH + 50)
    for start, count in ((0, 10), (7, STRETCH), (STRETCH - 3, STRETCH + 9), (2 * STRETCH, 50)):
        assert torch.equal(draws(start, count), whole[start : start + count])


def test_draws_are_uniform_and_independent() -> None:
    """Within five standard errors: of every tenth's share, and of the correlations."""
    count = 2 * STRETCH
    first = draws(0, count)
    shares = torch.histc(first, 10, 0, 1) / count
    assert (shares - 0.1).abs().max() < 5 * (0.09 / count) ** 0.5
    assert first.min() >= 0
    assert first.max() < 1
    others = [draws(0, count, member=1), draws(0, count, seed=1), first.roll(1)]
    others.append(uniform(slab(name="v"), count, seed=0, member=0, device=CPU))
    for other in others:
        correlation = float(torch.corrcoef(torch.stack([first, other]))[0, 1])
        assert abs(correlation) < 5 / count**0.5


def pool() -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    generator = torch.Generator().manual_seed(0)
    base = {"encoder.weight": torch.randn(12, 9, generator=generator)}
    members = [{n: v + 0.1 * torch.randn(v.shape, generator=generator) for n, v in base.items()}]
    return base, members * 2


@pytest.mark.parametrize(
    ("method", "asked", "taken"),
    [
        ("tsv_m", "auto", "cuda"),
        ("doge_ta", "auto", "cuda"),
        ("tsv_m", "cpu", "cpu"),
        ("ties", "auto", "cpu"),
        ("dare", "auto", "cpu"),
    ],
)
def test_an_accelerator_is_taken_for_heavy_methods(
    method: str, asked: str, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    base, members = pool()
    request = make_request(method, members, base, None, Options(device=asked), {"": {}})
    assert prepare(request).stream.device == taken


@pytest.mark.gpu
def test_draws_have_the_same_bits_on_a_gpu() -> None:
    device = torch.device("cuda")
    for start in (0, 5, STRETCH - 1):
        assert torch.equal(draws(start, STRETCH + 3, device).cpu(), draws(start, STRETCH + 3))


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["average", "tsv_m", "dare"])
def test_what_is_no_number_is_found_on_a_gpu(method: str) -> None:
    """Also where the decomposition itself would fail on it, or the result would be blamed."""
    base, (first, second) = pool()
    second = {name: values.clone() for name, values in second.items()}
    second["encoder.weight"][3, 3] = torch.nan
    anchor = None if method == "average" else base
    with pytest.raises(BadCheckpointError, match=r"1: tensor 'encoder\.weight' holds NaN"):
        fuse(method, {"0": first, "1": second}, base=anchor, device="cuda")
    # Numbers whose sum is none: they are left alone.
    large = {name: torch.full_like(values, 3e37) for name, values in first.items()}
    got = fuse("average", [large, large], device="cuda")
    assert torch.isfinite(got["encoder.weight"]).all()


@pytest.mark.gpu
def test_the_device_is_in_the_record(tmp_path: Path) -> None:
    base, members = pool()
    for method, device in (("tsv_m", torch.cuda.get_device_name()), ("ties", "cpu")):
        out = fuse(method, members, base=base, out=tmp_path / method)
        record = read_record(out)
        assert record is not None
        assert str(record.versions["device"]).startswith(device)
