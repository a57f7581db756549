"""Fusion against FusionBench, mergekit and the physical floor: one run, same files, best of three.

    python benchmarks/fusion.py [--peers VENV] [--only average,ties] [--members 8] [--large]
                                [--patience SECONDS]
    python benchmarks/fusion.py --only memory [--most 2] [--large] [--size '66 B'] [--out FOLDER]

Runs the commands themselves, of ours and of the peers, up to 66 B weights with all that they write
(`memory` says where to). The pool is synthetic: a base and eight members of
the size of a CLIP ViT-B/32 vision encoder (87.5 M weights in fp32). It is made under --work (3.2
GB) and removed at the end. Peers run when STOCKPOT_PEER_VENV (or --peers) names an environment that
has their console scripts; otherwise figures recorded on two cores of an AMD EPYC are shown, scaled
by the time that `import torch` takes here, and marked as recorded. Beside the wall time stands the
CPU time, which other work on the machine hardly changes. A peer that has not finished after
--patience seconds is stopped, and the ratio is given as an upper bound.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from parts.synthetic_pool import fusionbench_config, make_pool, make_sparse, mergekit_recipe
from parts.watched import Cost, watch
from stockpot.fuse.run import plan

STOCKPOT = str(Path(sys.executable).with_name("stockpot"))
RECORDED_IMPORT = 1.2
RECORDED = {  # seconds, private MB
    ("average", "mergekit"): (5.8, 645),
    ("average", "fusionbench"): (8.2, 1377),
    ("task_arithmetic", "mergekit"): (7.5, 785),
    ("task_arithmetic", "fusionbench"): (9.3, 1711),
    ("ties", "mergekit"): (118.4, 1004),
    ("ties", "fusionbench"): (82.5, 19750),
    ("dare", "mergekit"): (61.1, 878),
    ("dare", "fusionbench"): (14.4, 3866),
}
FUSIONBENCH = {
    "average": ["method=simple_average"],
    "task_arithmetic": ["method=task_arithmetic", "method.scaling_factor=0.3"],
    "ties": ["method=ties_merging", "method.scaling_factor=0.3", "method.threshold=20"],
    "dare": ["method=dare/task_arithmetic"],
    "tsv_m": ["method=task_singular_vector/TaskSingularVectorMerging"],
    "iso_c": ["method=isotropic_merging/iso_c"],
}
MERGEKIT = {
    "average": ("linear", "weight: 1.0"),
    "task_arithmetic": ("task_arithmetic", "weight: 0.3"),
    "ties": ("ties", "weight: 1.0, density: 0.2"),
    "dare": ("dare_linear", "weight: 0.3, density: 0.5"),
}
TARGETS = {  # method -> share of each peer's time that ours may take
    "average": {"mergekit": 1 / 2, "fusionbench": 1 / 3},
    "task_arithmetic": {"mergekit": 1 / 2, "fusionbench": 1 / 3},
    "ties": {"fusionbench": 1 / 8},
    "dare": {"fastest peer": 1 / 2},
    "tsv_m": {"fusionbench": 1.0},
    "iso_c": {"fusionbench": 1.0},
}
SLOW = ("ties", "dare", "tsv_m", "iso_c")
"""Methods whose peers take minutes: these are run once, ours three times."""
SLOWEST = ("tsv_m",)
"""Where ours takes minutes too, it is run once."""


def best(command: list[str], out: Path, repeats: int, patience: float | None = None) -> Cost:
    costs = []
    for _ in range(repeats):
        costs.append(watch(command, patience))
        if out.is_file():  # FusionBench writes one file where others make a folder
            out.unlink()
        shutil.rmtree(out, ignore_errors=True)
    return min(costs)


def ours(method: str, pool: Path, count: int, out: Path) -> list[str]:
    members = [str(pool / f"m{i}") for i in range(count)]
    base = [] if method == "average" else ["--base", str(pool / "base")]
    extra = ["-p", "reduce=sum"] if method == "ties" else []
    return [STOCKPOT, "fuse", method, *members, *base, "-o", str(out), *extra]


def peer(program: str, method: str, peers: Path, pool: Path, count: int, out: Path) -> list[str]:
    if program == "fusionbench":
        config = fusionbench_config(pool, count)
        return [
            str(peers / "bin" / "fusion_bench"), "--config-dir", str(config), "modelpool=pool",
            "taskpool=dummy", f"merged_model_save_path={out}", *FUSIONBENCH[method],
        ]  # fmt: skip
    recipe = mergekit_recipe(pool, count, *MERGEKIT[method])
    return [str(peers / "bin" / "mergekit-yaml"), str(recipe), str(out), "--no-copy-tokenizer"]


def measure_peer(
    program: str, method: str, args: argparse.Namespace, pool: Path, out: Path, speed: float
) -> Cost | None:
    known = FUSIONBENCH if program == "fusionbench" else MERGEKIT
    if method not in known:
        return None
    if args.peers is not None:
        command = peer(program, method, args.peers, pool, args.members, out)
        return best(command, out, 1 if method in SLOW else 3, args.patience)
    if (method, program) not in RECORDED or args.members != 8:
        return None
    seconds, memory = RECORDED[method, program]
    return Cost(seconds * speed, memory, note="recorded, scaled")


STREAMING = """
import sys, time, shutil
from stockpot.fuse.run import fuse
method, count, pool, out = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
members = [f"{pool}/m{i}" for i in range(count)]
base = None if method == "average" else f"{pool}/base"
times = []
for _ in range(4):
    shutil.rmtree(out, ignore_errors=True)
    started = time.perf_counter()
    fuse(method, members, base=base, out=out, hashes=False)
    times.append(time.perf_counter() - started)
print(min(times))
"""
FLOOR = """
import mmap, os, sys, time
import numpy as np
method, count, pool, out = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
names = [f"m{i}" for i in range(count)] + ([] if method == "average" else ["base"])
times = []
for _ in range(4):
    started = time.perf_counter()
    block = np.empty(1 << 18, np.float32)
    maps = []
    for name in names:
        with open(f"{pool}/{name}/model.safetensors", "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start = 8 + int.from_bytes(mapped[:8], "little")
        maps.append(np.frombuffer(mapped, np.float32, offset=start))
    with open(out, "wb") as file:
        for start in range(0, len(maps[0]), len(block)):
            part = block[: min(len(block), len(maps[0]) - start)]
            part[:] = maps[0][start : start + len(part)]
            for values in maps[1:]:
                np.add(part, values[start : start + len(part)], out=part)
            file.write(part.data)
    times.append(time.perf_counter() - started)
os.remove(out)
print(min(times))
"""


def script_seconds(script: str, *arguments: str) -> float:
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(done.stdout.split()[-1])


def verdict(ratio: float, limit: float) -> str:
    return "met" if ratio <= limit else "MISSED"


def compare(method: str, args: argparse.Namespace, pool: Path, speed: float) -> None:
    out = pool / "out"
    mine = best(ours(method, pool, args.members, out), out, 1 if method in SLOWEST else 3)
    print(
        f"\n{method}: stockpot {mine.seconds:.2f} s ({mine.cpu:.1f} s of CPU), "
        f"{mine.private_mb:.0f} MB private",
        flush=True,
    )
    found = {}
    for program in ("mergekit", "fusionbench"):
        cost = measure_peer(program, method, args, pool, out, speed)
        if cost is None:
            continue
        found[program] = cost.seconds
        note = f" ({cost.note})" if cost.note else ""
        if cost.cpu:
            note += f" ({cost.cpu:.1f} s of CPU, ours takes {mine.cpu / cost.cpu:.3f} of it)"
        print(
            f"  {program:12s} {cost.seconds:7.2f} s, {cost.private_mb:6.0f} MB{note}: "
            f"ours takes {mine.seconds / cost.seconds:.3f} of it"
        )
    if found:
        found["fastest peer"] = min(found.values())
    for program, limit in TARGETS[method].items():
        if program in found:
            ratio = mine.seconds / found[program]
            print(f"  at most {limit:.3f} of {program}: {ratio:.3f} {verdict(ratio, limit)}")
    if method in ("average", "task_arithmetic"):
        count = str(args.members)
        part = script_seconds(STREAMING, method, count, str(pool), str(out))
        shutil.rmtree(out, ignore_errors=True)
        floor = script_seconds(FLOOR, method, count, str(pool), str(pool / "floor.bin"))
        ratio = part / floor
        print(f"  streaming {part:.3f} s, floor {floor:.3f} s: {ratio:.2f} {verdict(ratio, 2.5)}")
    if method == "ties":
        print(f"  at most 1200 MB private: {verdict(mine.private_mb, 1200)}")


SIZES = {  # label: layers, width, words, files of one model
    "ViT-B (87.5 M)": (12, 768, 0, 1),
    "1 B, one file": (5, 4096, 4000, 1),
    "8 B, 4 files": (32, 4096, 256_000, 4),
    "15 B, one 30 GB file": (69, 4096, 256_000, 1),
    "66 B, 28 files": (80, 8192, 160_000, 28),
}
MEMORY_CASES = [  # size, members, methods
    ("ViT-B (87.5 M)", 2, ("average", "ties", "model_stock", "karcher", "della", "sce")),
    ("ViT-B (87.5 M)", 100, ("average", "ties", "model_stock", "karcher", "della", "sce")),
    ("1 B, one file", 2, ("average", "task_arithmetic", "ties", "model_stock")),
    ("8 B, 4 files", 2, ("average", "task_arithmetic", "ties", "model_stock")),
    ("8 B, 4 files", 19, ("average",)),
    ("15 B, one 30 GB file", 2, ("average",)),
    ("66 B, 28 files", 2, ("average", "task_arithmetic", "model_stock")),
    ("66 B, 28 files", 100, ("average",)),
]


def memory(args: argparse.Namespace, work: Path) -> None:
    """Private memory and open files of the command over members and size, under 1,024 descriptors.

    The members are sparse files that read as zeros, but for a first weight; of 66 B weights they
    take no room. What is made of them is written whole, 132 GB of it, so --large wants an --out
    with that much: a disk that compresses will do. A case that does not fit there is left out.
    """
    print("\nprivate memory and open files, sparse files; plan: what stockpot fuse --plan says")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    os.environ["STOCKPOT_CACHE"] = str(work / "cache")
    for label, count, methods in MEMORY_CASES:
        layers, width, words, files = SIZES[label]
        if (words and not args.large) or count > args.most or not label.startswith(args.size):
            continue
        folder, out = work / "sparse", (args.out or work) / "out"
        paths = [
            make_sparse(folder / str(i), layers, width, words, files) for i in range(count + 1)
        ]
        base, *members = map(str, paths)
        for method in methods:
            if args.methods and method not in args.methods.split(","):
                continue
            of = None if method in ("average", "karcher") else base
            planned = plan(method, members, base=of, device="cpu")
            about = f"  {label:20s} {method:15s} {count:3d} members: "
            if planned.write_bytes > shutil.disk_usage(out.parent).free:
                print(f"{about}left out, {planned.write_bytes / 1e9:.0f} GB are not free")
                continue
            command = [STOCKPOT, "fuse", method, *members, "-o", str(out)]
            command += ["--base", base] if of else []
            shutil.rmtree(work / "cache", ignore_errors=True)  # each hashes its files anew
            cost = watch(command, args.patience)
            made = sum(file.stat().st_size for file in out.glob("*.safetensors"))
            shutil.rmtree(out, ignore_errors=True)
            for left in out.parent.glob(".out.partial-*"):  # of a command that was stopped
                shutil.rmtree(left)
            ended = "stopped" if cost.note else f"{made / 1e9:.1f} GB written"
            print(
                f"{about}{cost.private_mb:5.0f} MB (plan {planned.peak_bytes / 1e6:.0f}), "
                f"{cost.files:4d} files, {cost.seconds:.1f} s, {cost.cpu:.1f} s of CPU ({ended})",
                flush=True,
            )
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or "").partition("\n")[0])
    found = os.environ.get("STOCKPOT_PEER_VENV")
    parser.add_argument("--peers", type=Path, default=Path(found) if found else None)
    parser.add_argument("--only", default=",".join([*TARGETS, "memory"]))
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--large", action="store_true", help="memory of 1 B to 66 B weights too")
    parser.add_argument("--size", default="", help="of memory, sizes that begin so, such as '66 B'")
    parser.add_argument("--methods", default="", help="of memory, only these")
    parser.add_argument("--most", type=int, default=100, help="members at most, for memory")
    parser.add_argument("--out", type=Path, help="where memory has the command write")
    parser.add_argument("--patience", type=float, help="seconds for a peer, or for memory")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="stockpot-fusion-", dir=args.work))
    try:
        speed = min(watch([sys.executable, "-c", "import torch"]).seconds for _ in range(3))
        print(f"import torch {speed:.2f} s ({os.cpu_count()} cores); peers: {args.peers or 'none'}")
        wanted = args.only.split(",")
        if any(method in TARGETS for method in wanted):
            make_pool(work, args.members)
        for method in TARGETS:
            if method in wanted:
                compare(method, args, work, speed / RECORDED_IMPORT)
        if "memory" in wanted:
            memory(args, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
