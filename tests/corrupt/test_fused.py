"""Fused kernels give what the plain operations give, or are not used."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch

from stockpot.corrupt import BENCHMARK, EXTRA
from stockpot.corrupt.apply import corrupt
from stockpot.corrupt.fused import kernel
from stockpot.corrupt.fused.kernel import Kernel

GPU = torch.device("cuda")
ONES = torch.ones(3)


@pytest.fixture
def made(monkeypatch) -> Kernel:
    """A kernel whose function the test chooses, as if there were a GPU."""
    monkeypatch.setattr(kernel, "_has_triton", lambda: True)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    return Kernel("fields:bits")


def test_a_kernel_is_compared_once_and_then_trusted(made, monkeypatch) -> None:
    monkeypatch.setattr(made, "_function", lambda: lambda: ONES.clone())
    asked = []
    for _ in range(3):
        assert torch.equal(made(lambda: asked.append(1) or ONES, GPU), ONES)
    assert len(asked) == 1
    assert made.usable


@pytest.mark.parametrize("problem", ["differs", "does not run"])
def test_a_kernel_that_fails_is_given_up_with_a_word(made, monkeypatch, problem) -> None:
    def broken() -> torch.Tensor:
        if problem == "differs":
            return ONES + 1
        raise RuntimeError("no compiler")

    monkeypatch.setattr(made, "_function", lambda: broken)
    with pytest.warns(UserWarning, match=problem):
        assert torch.equal(made(lambda: ONES, GPU), ONES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(made(lambda: ONES, GPU), ONES)


def test_a_cpu_takes_the_plain_operations(made) -> None:
    assert torch.equal(made(lambda: ONES, torch.device("cpu")), ONES)
    assert made.usable is None


@pytest.mark.gpu
@pytest.mark.parametrize("name", BENCHMARK + EXTRA)
@pytest.mark.parametrize("shape", [(5, 3, 224, 224), (40, 3, 32, 32), (3, 3, 53, 121)])
def test_kernels_change_no_bit(monkeypatch, name, shape) -> None:
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(shape[0], 3, 9, 9, generator=generator)
    images = torch.nn.functional.interpolate(coarse, size=shape[2:], mode="bicubic")
    images = (images * 255).clamp(0, 255).to(torch.uint8).cuda()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a kernel that was given up
        fused = [corrupt(images, name, severity, seed=3) for severity in (1, 3, 5)]
    monkeypatch.setattr(kernel, "_has_triton", lambda: False)
    for severity, found in zip((1, 3, 5), fused, strict=True):
        assert torch.equal(found, corrupt(images, name, severity, seed=3)), severity
