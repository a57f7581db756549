"""What a command costs before and beside its forward passes, in CPU seconds.

    python benchmarks/start.py [--model icons-resnet] [--data icons] [--repeats 3]

Runs `stockpot measure MODEL --data DATA` as a user does, and `python -c "import torch"` as the
floor in the same run; the forward passes alone are timed in a process of their own by the same loop
that the measure uses. The least of the repeats counts: a busy machine only adds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

UNKEPT = "PYTHONDONTWRITEBYTECODE"
"""Set, it would have every command compile what it imports (`stockpot doctor` says so)."""
PASSES = """
import sys, time
from stockpot.datasets.load import load_dataset
from stockpot.engine import pick_device
from stockpot.measure.measurement import Context, forward_batches
from stockpot.models.load import load_for
data, device = load_dataset(sys.argv[2]), pick_device("auto")
model = load_for(sys.argv[1], data, device=device, keep=True)
begin = time.process_time()
for logits, _ in forward_batches(model, data, Context(device), "passes"):
    last = logits
last.cpu()
print(time.process_time() - begin)
"""


def cpu(*command: str) -> tuple[float, float, str]:
    """CPU seconds and wall seconds of a command, and what it printed."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    own = {name: value for name, value in os.environ.items() if name != UNKEPT}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=own)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, wall, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="icons-resnet")
    parser.add_argument("--data", default="icons")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    stockpot = [sys.executable, "-c", "from stockpot.cli.main import main; main()"]
    floors, whole, passes = [], [], []
    for _ in range(options.repeats):
        floors.append(cpu(sys.executable, "-c", "import torch"))
        with tempfile.TemporaryDirectory() as out:
            whole.append(
                cpu(*stockpot, "measure", options.model, "--data", options.data, "-o", out)
            )
            (result,) = (Path(out) / "results").glob("*.json")
            stages = json.loads(result.read_text())["cost"]["stages"]
        passes.append(float(cpu(sys.executable, "-c", PASSES, options.model, options.data)[2]))
    floor, command, forward = min(floors)[0], min(whole)[0], min(passes)
    beyond = command - floor
    print(f"stockpot measure {options.model} --data {options.data}, {os.cpu_count()} cores")
    print(f"import torch                 {floor:6.2f} s CPU  {min(f[1] for f in floors):6.2f} s")
    print(f"the command                  {command:6.2f} s CPU  {min(w[1] for w in whole):6.2f} s")
    print(f"beyond importing torch       {beyond:6.2f} s CPU")
    print(f"  its forward passes         {forward:6.2f} s CPU")
    print(f"  everything else            {beyond - forward:6.2f} s CPU")
    print("stages of the last run: " + ", ".join(f"{k} {v:.2f}" for k, v in stages.items()))


if __name__ == "__main__":
    main()
