"""Work on a GPU that is not torch's current one."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from stockpot.engine.current import as_current
from stockpot.models.forward.options import Forward
from stockpot.models.forward.passes import Passes
from stockpot.models.load import load_model


def test_only_another_gpu_is_made_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda device: f"on {device}")
    for device in ("cpu", "cuda", "cuda:0"):
        assert isinstance(as_current(torch.device(device)), nullcontext)
    assert as_current(torch.device("cuda:1")) == "on cuda:1"  # type: ignore[comparison-overlap]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="asks for two GPUs")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_passes_on_the_second_gpu_answer_every_batch(precision: str) -> None:
    model = load_model("icons-resnet").eval()
    pixels = torch.randint(0, 256, (3, 32, 3, 64, 64), dtype=torch.uint8)
    found = []
    for device in ("cuda:0", "cuda:1"):
        run = Passes(model.to(device), Forward(precision), size=32)  # type: ignore[arg-type]
        with torch.inference_mode():
            found.append([run(batch.to(device)).cpu() for batch in pixels])
    for first, second in zip(*found, strict=True):
        assert torch.allclose(first, second, atol=1e-4)
