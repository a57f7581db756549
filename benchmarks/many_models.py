"""Many models measured together, against each alone and against their bare forward passes.

    python benchmarks/many_models.py                                    # tiny networks, CPU
    python benchmarks/many_models.py --with corruption --models 6 --images 60
    python benchmarks/many_models.py --device cuda --model resnet50 --models 10 --images 10000

`stockpot.measure` is called as a user calls it, from JPEG files, with all models at once and with
some of them one by one. The bare passes are those of the measure (`Passes`: same precision, same
graph) on one batch that is on the device already, as often as the models look at the pictures.
CPU time is taken on a CPU, which others share, and the time of day where a GPU does the work.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from parts.photographs import NETWORKS, checkpoints, photographs
from parts.stages import print_stages
from stockpot.engine import pick_device
from stockpot.measure.run import measure
from stockpot.models.classifier import evaluating
from stockpot.models.forward.options import chosen_forward
from stockpot.models.forward.passes import Passes
from stockpot.models.load import load_model
from stockpot.results.schema import CellResult


def clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter()
    return time.process_time()


def bare(model: Path, options: argparse.Namespace, device: torch.device) -> float:
    """Images per second of the passes alone."""
    network = load_model(model).to(device)
    side = NETWORKS[options.model][1]
    pixels = torch.randint(0, 256, (options.batch_size, 3, side, side)).to(torch.uint8).to(device)
    run = Passes(network, chosen_forward(options.precision, False, device), options.batch_size)
    with evaluating(network):
        run(pixels)
        passes = max(2, 2000 // options.batch_size)
        start = clock(device)
        for _ in range(passes):
            run(pixels)
        return passes * options.batch_size / (clock(device) - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="tiny", choices=NETWORKS)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--alone", type=int, default=2, help="so many of them also one by one")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--with", dest="measure", default="clean")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--batch-size", type=int, default=256)
    options = parser.parse_args()
    device = pick_device(options.device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photographs(folder / "photos", options.images)
        models = checkpoints(folder, options.model, options.models)
        rate = bare(models[0], options, device)

        def measured(chosen: list[Path], out: str) -> tuple[float, list[CellResult]]:
            start = clock(device)
            found = measure(
                chosen,
                {options.measure: {"baseline": "none"} if options.measure == "corruption" else {}},
                data=folder / "photos",
                out=folder / out,
                device=options.device,
                precision=options.precision,
                batch_size=options.batch_size,
            )
            return clock(device) - start, found

        together, results = measured(models, "together")
        alone, same = 0.0, True
        for number, model in enumerate(models[: options.alone]):
            seconds, (found,) = measured([model], f"alone{number}")
            alone += seconds
            same &= found.outcomes == results[number].outcomes
    looks = sum(result.cost.images for result in results)
    floor = looks / rate
    print(
        f"{options.models} x {options.model}, {options.images} pictures, "
        f"{options.measure}, {device}"
    )
    print(f"bare passes    {floor:8.2f} s   {rate:,.0f} images/s")
    print(f"together       {together:8.2f} s   {together / floor:.2f} of the passes")
    if options.alone:
        whole = alone / options.alone * options.models
        print(f"one by one     {whole:8.2f} s   {whole / floor:.2f} of the passes, "
              f"from {options.alone} of them; same answers: {same}")  # fmt: skip
    print_stages(results, floor)


if __name__ == "__main__":
    main()
