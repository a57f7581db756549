"""`stockpot measure` of many models together, against each alone and against bare forward passes.

    python benchmarks/many_models.py                                    # tiny networks, CPU
    python benchmarks/many_models.py --with corruption --models 6 --images 60
    python benchmarks/many_models.py --device cuda --model resnet50 --models 10 --images 10000

The command is run as a user runs it, from JPEG files, with all models at once and with some of them
one by one, each time in a process of its own: in one process, pictures that were decoded before
would be there for whoever comes next. The floor is bare passes on one batch that is on the device
already, as often as the models look at the pictures, in the precision that the results tell: those
of the network as torch alone has it, or the recorded ones of the measure (`Passes`), whichever are
faster. CPU time is taken on a CPU, which others share, and the time of day where a GPU does the
work; stages are by the clock.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import torch

import stockpot
from parts.bare import Bare, Seconds, asked, least
from parts.photographs import NETWORKS, checkpoints, photographs
from parts.stages import print_stages, read_results
from parts.watched import STOCKPOT, Cost, watch
from stockpot.engine import keep_freed_memory, pick_device
from stockpot.models.forward.arithmetic import products
from stockpot.models.forward.options import Forward
from stockpot.models.forward.passes import Passes
from stockpot.results.schema import CellResult


def bare(model: Path, precision: str, options: argparse.Namespace) -> dict[str, Seconds]:
    """What a picture takes, by whose passes."""
    size, side = options.batch_size, NETWORKS[options.model][1]
    ours, plain = (stockpot.load_model(model).to(options.device).eval() for _ in range(2))
    ways = {
        "of the network": Bare(plain.network, precision),
        "recorded, as in the measure": Passes(ours, Forward(precision), size),
    }
    pixels = torch.randint(0, 256, (size, 3, side, side)).to(torch.uint8).to(options.device)
    batches = [pixels] * max(2, 2000 // size)
    with products(tf32=precision == "tf32"):
        return {
            name: least(partial(asked, run, batches), options.device).times(
                1 / (size * len(batches))
            )
            for name, run in ways.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="tiny", choices=NETWORKS)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--alone", type=int, default=2, help="so many of them also one by one")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--with", dest="measure", default="clean")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args()
    options.device = str(pick_device(options.device))
    keep_freed_memory()  # as `measure` does: the floor has it too
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder / "photos", options.images)
        models = checkpoints(folder, options.model, options.models)

        def measured(chosen: list[Path], out: Path) -> tuple[Cost, list[CellResult]]:
            command = [*STOCKPOT, "measure", *map(str, chosen), "--data", str(folder / "photos")]
            command += ["--with", options.measure, "--device", options.device, "-o", str(out)]
            command += ["--precision", options.precision, "--batch-size", str(options.batch_size)]
            return watch(command, None, options.device), read_results(out)

        cost, results = measured(models, folder / "together")
        singles = [measured([model], folder / model.name) for model in models[: options.alone]]
        used = results[0].forward
        precision = used.precision if used and options.precision == "auto" else options.precision
        ways = bare(models[0], precision, options)
    looks = sum(result.cost.images for result in results)
    floor = Seconds(*map(min, zip(*ways.values(), strict=True))).times(looks)
    print(f"{options.models} x {options.model}, {options.images} pictures, {options.measure}, "
          f"{options.device}, {precision}")  # fmt: skip
    for way, each in ways.items():
        print(f"{looks} bare passes {way}: {each.times(looks).spent:.2f} s")
    together = cost.spent(options.device)
    print(f"together    {together:8.2f} s  {together / floor.spent:.2f} of the floor")
    if singles:
        each = sum(one.spent(options.device) for one, _ in singles) / len(singles)
        whole = each * options.models
        known = {result.key.model: result.outcomes for result in results}
        same = all(known[one.key.model] == one.outcomes for _, (one,) in singles)
        print(f"one by one  {whole:8.2f} s  {whole / floor.spent:.2f} of the floor, "
              f"from {len(singles)} of them; same answers: {same}")  # fmt: skip
    print("stages of all together:")
    print_stages(results, floor.clock, "floor")


if __name__ == "__main__":
    main()
