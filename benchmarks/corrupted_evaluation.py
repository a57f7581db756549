"""What a whole ImageNet-C evaluation costs, as a multiple of its forward passes.

    python benchmarks/corrupted_evaluation.py --device cuda      # ResNet-50, bf16, compiled
    python benchmarks/corrupted_evaluation.py --device cpu --model icons-resnet

The forward passes alone are the floor: an evaluation of 15 corruptions x 5 severities needs 75 of
them per image. Corrupting and classifying the same images in one loop is compared with that.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn

from stockpot.corrupt import BENCHMARK, SEVERITIES
from stockpot.corrupt.apply import corrupt


def resnet50(device: str) -> tuple[nn.Module, int]:
    """ResNet-50 with random weights: the time does not depend on their values."""
    from transformers import ResNetConfig, ResNetForImageClassification

    model = ResNetForImageClassification(ResNetConfig(num_labels=1000)).eval().to(device)
    return model.to(memory_format=torch.channels_last), 224


class Plain(nn.Module):
    """uint8 pixels to the predicted class, normalised on the way."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model.to(dtype)
        self.dtype = dtype

    def forward(self, pixels: Tensor) -> Tensor:
        seen = ((pixels.to(self.dtype) / 255 - 0.45) / 0.225).to(memory_format=torch.channels_last)
        return self.model(pixel_values=seen).logits.argmax(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="resnet50", help="resnet50, or a zoo model")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    if options.model == "resnet50":
        network, size = resnet50(options.device)
        model: nn.Module = Plain(network, torch.bfloat16)
    else:
        from stockpot.models.load import load_model

        loaded = load_model(options.model).to(options.device).eval()
        model, size = loaded, loaded.preprocess.size.height
    if not options.no_compile:
        model = torch.compile(model)
    generator = torch.Generator().manual_seed(0)
    batch = min(options.batch, options.images)
    small = torch.randint(0, 256, (batch, 3, size // 8, size // 8), generator=generator)
    images = nn.functional.interpolate(small.float(), size=(size, size), mode="bicubic")
    images = images.clamp(0, 255).to(torch.uint8).to(options.device)
    rounds = max(1, options.images // batch)
    with torch.inference_mode():
        model(images)
        for name in BENCHMARK:
            for severity in SEVERITIES:
                corrupt(images, name, severity, seed=0)
        forward = timed(lambda: model(images), 10, options.device)
        grid = timed(lambda: whole_grid(model, images), rounds, options.device)
        only = timed(lambda: whole_grid(None, images), rounds, options.device)
    cells = len(BENCHMARK) * len(SEVERITIES)
    print(f"forward alone          {batch / forward:10.0f} images/s")
    print(f"corrupting alone       {cells * batch / only:10.0f} images/s over the 15 x 5 grid")
    print(f"corrupt and classify   {cells * batch / grid:10.0f} images/s")
    print(f"whole evaluation / its forward passes = {grid / (cells * forward):.2f}")


def whole_grid(model: nn.Module | None, images: Tensor) -> None:
    for name in BENCHMARK:
        for severity in SEVERITIES:
            changed = corrupt(images, name, severity, seed=1)
            if model is not None:
                model(changed)


def timed(run: object, repeats: int, device: str) -> float:
    """Seconds per call, the best of the repeats."""
    best = float("inf")
    for _ in range(repeats):
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        start = time.perf_counter()
        run()  # type: ignore[operator]
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


if __name__ == "__main__":
    main()
