"""What a command costs before and beside its forward passes: `stockpot measure` from its start.

    python benchmarks/start.py [--model icons-resnet] [--data icons] [--repeats 3]

Runs `stockpot measure MODEL --data DATA` as a user does, on a processor, and `python -c "import
torch"` in the same run, which is the floor. The least of the repeats counts: a busy machine only
adds. Stages are those that the result of the fastest command tells, by the clock.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from parts.stages import print_stages, read_results
from parts.watched import STOCKPOT, watch


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="icons-resnet")
    parser.add_argument("--data", default="icons")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    command = [*STOCKPOT, "measure", options.model, "--data", options.data, "--device", "cpu"]
    floors, commands = [], []
    with tempfile.TemporaryDirectory() as name:
        for turn in range(options.repeats):
            out = Path(name) / str(turn)
            floors.append(watch([sys.executable, "-c", "import torch"]))
            cost = watch([*command, "-o", str(out)])
            commands.append((cost, read_results(out)))
    cpu, clock = min(one.cpu for one in floors), min(one.seconds for one in floors)
    took = min(one.cpu for one, _ in commands)
    best, results = min(commands, key=lambda each: each[0].seconds)
    print(f"stockpot measure {options.model} --data {options.data}, {os.cpu_count()} cores")
    print(f"import torch, the floor  {cpu:6.2f} s CPU  {clock:6.2f} s")
    print(f"the command              {took:6.2f} s CPU  {best.seconds:6.2f} s")
    print(f"ratio                    {took / cpu:6.2f}        {best.seconds / clock:6.2f}")
    print(f"beyond importing torch   {took - cpu:6.2f} s CPU  {best.seconds - clock:6.2f} s")
    print_stages(results, clock, "import of torch")


if __name__ == "__main__":
    main()
