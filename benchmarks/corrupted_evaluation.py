"""`stockpot measure FOLDER --data photos/ --with corruption` against its bare forward passes.

    python benchmarks/corrupted_evaluation.py --device cuda --model resnet50 --images 1000,4000
    python benchmarks/corrupted_evaluation.py --device cuda --model vit-b16 --images 1000,2000
    python benchmarks/corrupted_evaluation.py --device cuda --models 10 --with clean --images 10000
    python benchmarks/corrupted_evaluation.py --device cuda --with clean --images 50000
    python benchmarks/corrupted_evaluation.py --device cpu --model tiny --images 50 --no-compile

The command runs as a user runs it: a process of its own, from JPEG files, start and loading
included. It runs on a few pictures first, since whatever runs for the first time on a machine
fills caches of kernels; the time of that is printed apart. The floor is taken in the same run: as
many forward passes of the same network, whole in bf16, compiled, on pixels that are on the device
already, by transformers' network (scaled dot product attention) or by ours, whichever is faster.
Pictures are about 500 x 375; networks have random weights, which take the same time as trained
ones, and of several models those after the first have another head. With `--scenes` there are no
more different pictures than that, in files of different bytes, which are all decoded. `--keep`
leaves pictures and models in a folder for the next benchmark. With two numbers of images the slope
between them says what 50,000 would take, and what is fixed.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from parts.photographs import CLASSES, NETWORKS, checkpoints, photographs
from parts.stages import print_stages, read_results
from parts.watched import STOCKPOT, environment
from stockpot.models.config import read_config
from stockpot.models.huggingface import HuggingFaceNetwork, new_huggingface
from stockpot.models.plain.load import plain_network
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

MANY = 50_000


def command(models: list[Path], photos: Path, out: Path, options: argparse.Namespace) -> float:
    """Seconds of the command, from its start to its end."""
    line = [*STOCKPOT, "measure", *map(str, models), "--data", str(photos), "-o", str(out)]
    line += ["--with", options.measure]
    line += ["--device", options.device, "--batch-size", options.batch]
    line += ["--precision", options.precision] + (["--compile"] if options.compile else [])
    start = time.perf_counter()
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment())
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return seconds


class Bare(nn.Module):
    """uint8 pixels to logits in bf16, nothing else: what the floor is taken with."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        convolutions = sum(isinstance(module, nn.Conv2d) for module in network.modules())
        # One convolution only cuts a picture into patches.
        self.layout = torch.channels_last if convolutions > 1 else torch.contiguous_format
        self.network = network.bfloat16().to(memory_format=self.layout)  # type: ignore[call-overload]

    def forward(self, pixels: Tensor) -> Tensor:
        seen = (pixels.bfloat16() / 255 - 0.45) / 0.225
        logits: Tensor = self.network(seen.contiguous(memory_format=self.layout))
        return logits


def floor(folder: Path, options: argparse.Namespace) -> tuple[float, str]:
    """Images per second of the bare network, compiled, and whose network that is."""
    rates: dict[str, float] = {}
    architecture, size, config = NETWORKS[options.model]
    side = ImageSize(size, size)
    if options.floor != "ours":
        theirs: Any = new_huggingface(
            architecture, classes=CLASSES, preprocess=Preprocess(side, side), seed=0, **config
        ).network
        theirs.model.config._attn_implementation = "sdpa"
        rates["transformers' network"] = rate(theirs, options)
    ours = plain_network(folder, read_config(folder)) if options.floor != "transformers" else None
    if ours is not None:
        rates["our network"] = rate(HuggingFaceNetwork(ours, Preprocess(side, side)), options)
    for name, found in rates.items():
        print(f"bare bf16 passes of {name}: {found:,.0f} images/s")
    best = max(rates, key=lambda name: rates[name])
    return rates[best], best


def rate(bare: nn.Module, options: argparse.Namespace) -> float:
    """Images per second of a network in bf16, compiled."""
    size = NETWORKS[options.model][1]
    network: nn.Module = Bare(bare).eval().to(options.device)
    torch.compiler.reset()
    run = network if options.no_compile else torch.compile(network, mode=options.mode)
    batch = 512 if options.device.startswith("cuda") else 16
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (batch, 3, size, size), generator=generator)
    pixels = pixels.to(torch.uint8).to(options.device)
    best = float("inf")
    with torch.inference_mode():
        for _ in range(3):
            run(pixels)
        for _ in range(5):
            _wait(options.device)
            start = time.perf_counter()
            for _ in range(4 if options.device.startswith("cuda") else 1):
                run(pixels)
            _wait(options.device)
            passes = 4 if options.device.startswith("cuda") else 1
            best = min(best, (time.perf_counter() - start) / passes)
    return batch / best


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="resnet50", choices=NETWORKS)
    parser.add_argument("--models", type=int, default=1, help="so many of them in one command")
    parser.add_argument("--images", default="4000", help="numbers, by comma")
    parser.add_argument("--with", dest="measure", default="corruption", help="corruption or clean")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--compile", action="store_true", help="let the command compile too")
    parser.add_argument("--batch", default="auto")
    parser.add_argument("--no-compile", action="store_true", help="a floor that is not compiled")
    parser.add_argument("--mode", default=None, help="of torch.compile, for the floor")
    parser.add_argument("--floor", default="faster", choices=["faster", "ours", "transformers"],
                        help="whose network is the floor")  # fmt: skip
    parser.add_argument("--scenes", type=int, help="so many different pictures at most")
    parser.add_argument("--keep", type=Path, help="a folder for pictures and models")
    parser.add_argument("--warm", type=int, default=64, help="pictures of the first run; 0: none")
    options = parser.parse_args()
    counts = sorted(int(number) for number in options.images.split(","))
    # The command also looks at every picture as it is; the floor counts the grid alone.
    looks = (75 if options.measure == "corruption" else 1) * options.models
    taken: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        models = checkpoints(folder, options.model, options.models)
        fastest, whose = floor(models[0], options)
        kind = "" if options.no_compile else ", compiled"
        print(f"{options.models} x {options.model} on {options.device}, {options.measure}; "
              f"the floor is {whose}{kind}: {fastest:,.0f} images/s")  # fmt: skip
        if options.warm:
            photographs(folder / "first", options.warm)
            first = command(models, folder / "first", Path(name) / "out-first", options)
            print(f"first use, {options.warm} pictures: command {first:.1f} s, "
                  "caches of kernels being filled")  # fmt: skip
        for count in counts:
            photos, out = folder / f"photos{count}", Path(name) / f"out{count}"
            photographs(photos, count, options.scenes)
            taken[count] = command(models, photos, out, options)
            least = looks * count / fastest
            print(f"{count} pictures: command {taken[count]:.1f} s, its {looks} x {count} passes "
                  f"{least:.1f} s, ratio {taken[count] / least:.2f}")  # fmt: skip
            results = read_results(out)
            print(f"  passes: {results[0].forward}")
            for note in results[0].notes:
                print(f"  note: {note}")
            print_stages(results, least)
    if len(counts) > 1:
        few, most = counts[0], counts[-1]
        each = (taken[most] - taken[few]) / (most - few)
        whole, least = taken[most] + (MANY - most) * each, looks * MANY / fastest
        print(f"fixed {taken[few] - few * each:.1f} s, then {1000 * each:.2f} s per 1,000 "
              f"pictures, {each * fastest / looks:.2f} of their passes")  # fmt: skip
        print(f"{MANY} pictures by the slope from {few} to {most}: {whole:.0f} s, "
              f"ratio {whole / least:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
