"""`stockpot measure FOLDER --data photos/ --with corruption` against its bare forward passes.

    python benchmarks/corrupted_evaluation.py                  # 12 pictures on a CPU
    python benchmarks/corrupted_evaluation.py --device cuda --model resnet50 --images 1000,4000
    python benchmarks/corrupted_evaluation.py --device cuda --model vit-b16 --images 1000,2000
    python benchmarks/corrupted_evaluation.py --device cuda --models 10 --with clean --images 10000
    python benchmarks/corrupted_evaluation.py --device cuda --with clean --images 50000

The command runs as a user runs it: a process of its own, from JPEG files, start and loading
included. It runs on a few pictures first, since whatever runs for the first time on a machine
fills caches of kernels; the time of that is printed apart. The floor is taken in the same run: as
many forward passes of the same network, in the precision that was asked for (of `auto`: that the
results tell), on a GPU compiled, on pixels that are on the device already, by transformers' network
(scaled dot product attention) or by ours, whichever is faster. Pictures are about 500 x 375;
networks have random weights, which take the same time as trained ones, and of several models those
after the first have another head. With `--scenes` there are no more different pictures than that,
in files of different bytes, which are all decoded. `--keep` leaves pictures and models in a folder
for the next benchmark. With two numbers of images the slope between them says what 50,000 would
take, and what is fixed.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from parts.bare import Bare, least
from parts.photographs import CLASSES, NETWORKS, checkpoints, photographs
from parts.stages import print_stages, read_results
from parts.watched import STOCKPOT, environment
from stockpot.models.config import read_config
from stockpot.models.forward.arithmetic import products
from stockpot.models.huggingface import HuggingFaceNetwork, new_huggingface
from stockpot.models.plain.load import plain_network
from stockpot.models.preprocess import Preprocess
from stockpot.results.schema import CellResult
from stockpot.types import ImageSize

MANY = 50_000
USUAL = {
    "cuda": {"images": "4000", "precision": "bf16", "warm": 64},
    "cpu": {"images": "12", "precision": "fp32", "warm": 0},
}
"""What is taken where nothing was asked: two cores need a minute for it."""


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


def floor(folder: Path, precision: str, options: argparse.Namespace) -> tuple[float, str]:
    """Images per second of the bare network, and whose network that is."""
    rates: dict[str, float] = {}
    architecture, size, config = NETWORKS[options.model]
    side = ImageSize(size, size)
    if options.floor != "ours":
        theirs: Any = new_huggingface(
            architecture, classes=CLASSES, preprocess=Preprocess(side, side), seed=0, **config
        ).network
        if hasattr(theirs.model.config, "_attn_implementation"):
            theirs.model.config._attn_implementation = "sdpa"
        rates["transformers' network"] = rate(theirs, precision, options)
    ours = plain_network(folder, read_config(folder)) if options.floor != "transformers" else None
    if ours is not None:
        network = HuggingFaceNetwork(ours, Preprocess(side, side))
        rates["our network"] = rate(network, precision, options)
    for name, found in rates.items():
        print(f"bare {precision} passes of {name}: {found:,.0f} images/s")
    best = max(rates, key=lambda name: rates[name])
    return rates[best], best


def rate(network: nn.Module, precision: str, options: argparse.Namespace) -> float:
    """Images per second of a network."""
    size = NETWORKS[options.model][1]
    run: Any = Bare(network, precision).eval().to(options.device)
    on_gpu = options.device.startswith("cuda")
    if on_gpu and not options.no_compile:
        torch.compiler.reset()
        run = torch.compile(run, mode=options.mode)
    batch, passes = (512, 4) if on_gpu else (16, 1)
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (batch, 3, size, size), generator=generator)
    pixels = pixels.to(torch.uint8).to(options.device)

    def work() -> None:  # answers are dropped: what is recorded writes all of them to one place
        for _ in range(passes):
            run(pixels)

    with torch.inference_mode(), products(tf32=precision == "tf32"):
        return batch * passes / least(work, options.device, rounds=5).clock


def options_given() -> argparse.Namespace:
    """What was asked, and what is usual on the device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="resnet50", choices=NETWORKS)
    parser.add_argument("--models", type=int, default=1, help="so many of them in one command")
    parser.add_argument("--images", help="numbers, by comma; by default 4000, 12 on a CPU")
    parser.add_argument("--with", dest="measure", default="corruption", help="corruption or clean")
    parser.add_argument("--precision", help="by default bf16, fp32 on a CPU")
    parser.add_argument("--compile", action="store_true", help="let the command compile too")
    parser.add_argument("--batch", default="auto")
    parser.add_argument("--no-compile", action="store_true",
                        help="on a GPU, a floor that is not compiled")  # fmt: skip
    parser.add_argument("--mode", help="of torch.compile, for the floor on a GPU")
    parser.add_argument("--floor", default="faster", choices=["faster", "ours", "transformers"],
                        help="whose network is the floor")  # fmt: skip
    parser.add_argument("--scenes", type=int, help="so many different pictures at most")
    parser.add_argument("--keep", type=Path, help="a folder for pictures and models")
    parser.add_argument("--warm", type=int, help="pictures of a first run; by default 64, none on "
                                                 "a CPU")  # fmt: skip
    options = parser.parse_args()
    for name, value in USUAL["cpu" if options.device == "cpu" else "cuda"].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def main() -> None:
    options = options_given()
    counts = sorted(int(number) for number in options.images.split(","))
    taken: dict[int, float] = {}
    results: dict[int, list[CellResult]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        models = checkpoints(folder, options.model, options.models)
        if options.warm:
            photographs(folder / "first", options.warm)
            first = command(models, folder / "first", Path(name) / "out-first", options)
            print(f"first use, {options.warm} pictures: command {first:.1f} s, "
                  "caches of kernels being filled")  # fmt: skip
        for count in counts:
            photos, out = folder / f"photos{count}", Path(name) / f"out{count}"
            photographs(photos, count, options.scenes)
            taken[count] = command(models, photos, out, options)
            results[count] = read_results(out)
            print(f"{count} pictures: command {taken[count]:.1f} s", flush=True)
        found = results[counts[0]][0].forward
        used = found.precision if found and options.precision == "auto" else options.precision
        fastest, whose = floor(models[0], used, options)
    kind = ", compiled" if options.device != "cpu" and not options.no_compile else ""
    print(f"{options.models} x {options.model} on {options.device}, {options.measure}; "
          f"the floor is {whose}, {used}{kind}: {fastest:,.0f} images/s")  # fmt: skip
    # The command also looks at every picture as it is; the floor counts the grid alone.
    looks = (75 if options.measure == "corruption" else 1) * options.models
    for count in counts:
        tell(results[count], taken[count], count, looks, looks * count / fastest)
    if len(counts) > 1:
        few, most = counts[0], counts[-1]
        each = (taken[most] - taken[few]) / (most - few)
        whole, least_time = taken[most] + (MANY - most) * each, looks * MANY / fastest
        print(f"fixed {taken[few] - few * each:.1f} s, then {1000 * each:.2f} s per 1,000 "
              f"pictures, {each * fastest / looks:.2f} of their passes")  # fmt: skip
        print(f"{MANY} pictures by the slope from {few} to {most}: {whole:.0f} s, "
              f"ratio {whole / least_time:.2f}")  # fmt: skip


def tell(results: list[CellResult], took: float, count: int, looks: int, passes: float) -> None:
    """A command against its floor, as a whole and by stage."""
    print(f"{count} pictures: command {took:.1f} s, its {looks} x {count} passes "
          f"{passes:.1f} s, ratio {took / passes:.2f}")  # fmt: skip
    print(f"  passes: {results[0].forward}")
    for note in results[0].notes:
        print(f"  note: {note}")
    print_stages(results, passes)


if __name__ == "__main__":
    main()
