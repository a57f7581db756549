"""`stockpot fuse` against the reading and writing of its files, and against other programs.

    python benchmarks/fusion.py                          # average, ties and memory, in two minutes
    python benchmarks/fusion.py --members 8 --only average,task_arithmetic,ties,dare --peers VENV
    python benchmarks/fusion.py --only memory --most 100 --large [--out FOLDER]
    python benchmarks/fusion.py --only memory --size '66 B' --methods average [--patience SECONDS]

Runs the commands themselves, of ours and of the peers, up to 66 B weights with all that they write
(`memory` says where to), best of three. The pool is synthetic: a base and members of the size of a
CLIP ViT-B/32 vision encoder (87.5 M weights in fp32, 0.35 GB each). It is made under --work and
removed at the end. The floor is one mapped read of the same files and one write, in the same run;
of `memory`, whose files are sparse, it is the seconds of a processor that reading and hashing as
many bytes and writing as many take. Peers run when STOCKPOT_PEER_VENV (or --peers) names an
environment that has their console scripts; else figures recorded on two cores of an AMD EPYC, with
eight members, are told. Beside the wall time stands the CPU time, which other work on the machine
hardly changes. A command of a peer, or of `memory`, that has not finished after --patience seconds
is stopped; what it had in memory and in open files by then is told.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from parts.stages import print_each, recorded_stages
from parts.synthetic_pool import fusionbench_config, make_pool, make_sparse, mergekit_recipe
from parts.watched import STOCKPOT, Cost, watch
from stockpot.fuse.run import plan

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


def best(
    command: list[str], out: Path, repeats: int, patience: float | None = None
) -> tuple[Cost, dict[str, float]]:
    """The least of some runs, and what the record of the model that it made says of its time."""
    costs = []
    for _ in range(repeats):
        costs.append((watch(command, patience), recorded_stages(out)))
        if out.is_file():  # FusionBench writes one file where others make a folder
            out.unlink()
        shutil.rmtree(out, ignore_errors=True)
    return min(costs, key=lambda run: run[0])


def ours(method: str, pool: Path, count: int, out: Path) -> list[str]:
    members = [str(pool / f"m{i}") for i in range(count)]
    base = [] if method == "average" else ["--base", str(pool / "base")]
    extra = ["-p", "reduce=sum"] if method == "ties" else []
    return [*STOCKPOT, "fuse", method, *members, *base, "-o", str(out), *extra]


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
    program: str, method: str, args: argparse.Namespace, pool: Path, out: Path
) -> Cost | None:
    known = FUSIONBENCH if program == "fusionbench" else MERGEKIT
    if method not in known:
        return None
    if args.peers is not None:
        command = peer(program, method, args.peers, pool, args.members, out)
        return best(command, out, 1 if method in SLOW else 3, args.patience)[0]
    if (method, program) in RECORDED:
        seconds, held = RECORDED[method, program]
        print(f"  {program} of eight members, as recorded elsewhere: {seconds:.1f} s, {held} MB")
    return None


STREAMING = """
import sys, time, shutil
import stockpot
method, count, pool, out = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
members = [f"{pool}/m{i}" for i in range(count)]
base = None if method == "average" else f"{pool}/base"
times = []
for _ in range(4):
    shutil.rmtree(out, ignore_errors=True)
    started = time.perf_counter()
    stockpot.fuse(method, members, base=base, out=out, hashes=False)
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


def compare(method: str, args: argparse.Namespace, pool: Path) -> None:
    out = pool / "out"
    command = ours(method, pool, args.members, out)
    mine, stages = best(command, out, 1 if method in SLOWEST else 3)
    count, spare = str(args.members), str(pool / "floor.bin")
    floor = script_seconds(FLOOR, method, count, str(pool), spare)
    print(
        f"\nstockpot fuse {method}: {mine.seconds:.2f} s ({mine.cpu:.1f} s of CPU), "
        f"{mine.private_mb:.0f} MB private; a read and a write of its files {floor:.2f} s: "
        f"{mine.seconds / floor:.1f} of the floor, start included",
        flush=True,
    )
    print_each(stages, floor, "floor")
    if method in ("average", "task_arithmetic"):
        part = script_seconds(STREAMING, method, count, str(pool), str(out))
        shutil.rmtree(out, ignore_errors=True)
        ratio = part / floor
        print(f"  without start and hashes {part:.3f} s: {ratio:.2f} of the floor "
              f"(wanted: at most 2.5) {verdict(ratio, 2.5)}")  # fmt: skip
    if method == "ties":
        print(f"  at most 1200 MB private: {verdict(mine.private_mb, 1200)}")
    found = {}
    for program in ("mergekit", "fusionbench"):
        cost = measure_peer(program, method, args, pool, out)
        if cost is None:
            continue
        found[program] = cost.seconds
        note = f" ({cost.note})" if cost.note else ""
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


SIZES = {  # label: layers, width, words, files of one model
    "ViT-B (87.5 M)": (12, 768, 0, 1),
    "1 B, one file": (5, 4096, 4000, 1),
    "7.5 B, 4 files": (32, 4096, 256_000, 4),
    "15 B, one 30 GB file": (69, 4096, 256_000, 1),
    "66 B, 28 files": (80, 8192, 160_000, 28),
}
MEMORY_CASES = [  # size, members, methods
    ("ViT-B (87.5 M)", 2, ("average", "ties", "model_stock", "karcher", "della", "sce")),
    ("ViT-B (87.5 M)", 100, ("average", "ties", "model_stock", "karcher", "della", "sce")),
    ("1 B, one file", 2, ("average", "task_arithmetic", "ties", "model_stock")),
    ("7.5 B, 4 files", 2, ("average", "task_arithmetic", "ties", "model_stock")),
    ("7.5 B, 4 files", 19, ("average",)),
    ("15 B, one 30 GB file", 2, ("average",)),
    ("66 B, 28 files", 2, ("average", "task_arithmetic", "model_stock")),
    ("66 B, 28 files", 100, ("average",)),
]


PARTS = [*TARGETS, "memory"]


def memory(args: argparse.Namespace, work: Path) -> None:
    """Private memory and open files of the command over members and size, under 1,024 descriptors.

    The members are sparse files that read as zeros, but for a first weight; of 66 B weights they
    take no room. What is made of them is written whole, 132 GB of it, so --large wants an --out
    with that much: a disk that compresses will do. A case that does not fit there is left out.
    """
    print("\nstockpot fuse, private memory and open files, sparse files; plan: what --plan says")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    os.environ["STOCKPOT_CACHE"] = str(work / "cache")
    tried = 0
    for label, count, methods in MEMORY_CASES:
        layers, width, words, files = SIZES[label]
        chosen = label.startswith(args.size) if args.size else args.large or not words
        if not chosen or count > args.most:
            continue
        folder, out = work / "sparse", (args.out or work) / "out"
        paths = [
            make_sparse(folder / str(i), layers, width, words, files) for i in range(count + 1)
        ]
        base, *members = map(str, paths)
        rates: tuple[float, ...] = (1.0, 1.0)
        for method in methods:
            if args.methods and method not in args.methods.split(","):
                continue
            tried += 1
            of = None if method in ("average", "karcher") else base
            planned = plan(method, members, base=of, device="cpu")
            about = f"  {label:20s} {method:15s} {count:3d} members: "
            if planned.write_bytes > shutil.disk_usage(out.parent).free:
                print(f"{about}left out, {planned.write_bytes / 1e9:.0f} GB are not free")
                continue
            read = members if of is None else [base, *members]
            rates = tuple(map(min, rates, seconds_of_a_byte(Path(base), out.parent)))
            command = [*STOCKPOT, "fuse", method, *members, "-o", str(out)]
            command += ["--base", base] if of else []
            shutil.rmtree(work / "cache", ignore_errors=True)  # each hashes its files anew
            cost = watch(command, args.patience)
            made = sum(file.stat().st_size for file in out.glob("*.safetensors"))
            shutil.rmtree(out, ignore_errors=True)
            for left in out.parent.glob(".out.partial-*"):  # of a command that was stopped
                shutil.rmtree(left)
            rates = tuple(map(min, rates, seconds_of_a_byte(Path(base), out.parent)))
            least = rates[0] * size_of(read) + rates[1] * planned.write_bytes
            ended = "stopped" if cost.note else f"{made / 1e9:.1f} GB written"
            ended += f"; floor {least:.1f} s"
            ended += "" if cost.note else f": {cost.cpu / least:.2f} of it"
            print(
                f"{about}{cost.private_mb:5.0f} MB (plan {planned.peak_bytes / 1e6:.0f}), "
                f"{cost.files:4d} files, {cost.seconds:.1f} s, {cost.cpu:.1f} s of CPU ({ended})",
                flush=True,
            )
        shutil.rmtree(folder)
    if not tried:
        raise SystemExit("no case has such a size, so few members and such a method")


def size_of(folders: list[str]) -> int:
    """Bytes of weights."""
    return sum(file.stat().st_size for name in folders for file in Path(name).glob("*.safetensors"))


def seconds_of_a_byte(folder: Path, out: Path, many: int = 2**28) -> tuple[float, float]:
    """Processor seconds to read and hash a byte, and to write one; the least of three tries.

    Args:
        folder: what is read from, as sparse as what the command reads.
        out: where it writes.
        many: bytes that are tried of each.
    """
    block = bytearray(2**22)
    spare, found = out / "floor.bin", []
    for _ in range(3):
        seen, digest, begin = 0, hashlib.sha256(), time.process_time()
        with next(folder.glob("*.safetensors")).open("rb", buffering=0) as file:
            while seen < many and (size := file.readinto(block)):
                digest.update(memoryview(block)[:size])
                seen += size
        read = time.process_time()
        with spare.open("wb", buffering=0) as file:
            for _ in range(many // len(block)):
                file.write(block)
        found.append(((read - begin) / seen, (time.process_time() - read) / many))
        spare.unlink()
    reading, writing = zip(*found, strict=True)
    return min(reading), min(writing)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    found = os.environ.get("STOCKPOT_PEER_VENV")
    parser.add_argument("--peers", type=Path, default=Path(found) if found else None)
    parser.add_argument("--only", default="average,ties,memory", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--large", action="store_true", help="memory of 1 B to 66 B weights too")
    parser.add_argument("--size", default="", help="of memory, only sizes that begin so: '66 B'")
    parser.add_argument("--methods", default="", help="of memory, only these")
    parser.add_argument("--most", type=int, default=2, help="members at most, for memory")
    parser.add_argument("--out", type=Path, help="where memory has the command write")
    parser.add_argument("--patience", type=float, help="seconds for a peer, or for memory")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()))
    args = parser.parse_args()
    wanted = args.only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))}: expected some of {', '.join(PARTS)}")
    if not any(label.startswith(args.size) for label in SIZES):
        parser.error(f"--size: {args.size!r} is the beginning of none of {', '.join(SIZES)}")
    tried = {method for _, _, methods in MEMORY_CASES for method in methods}
    if args.methods and (unknown := set(args.methods.split(",")) - tried):
        parser.error(
            f"--methods: {', '.join(sorted(unknown))}: expected {', '.join(sorted(tried))}"
        )
    work = Path(tempfile.mkdtemp(prefix="stockpot-fusion-", dir=args.work))
    try:
        print(f"{os.cpu_count()} cores, {args.members} members; peers: {args.peers or 'none'}")
        if any(method in TARGETS for method in wanted):
            make_pool(work, args.members)
        for method in TARGETS:
            if method in wanted:
                compare(method, args, work)
        if "memory" in wanted:
            memory(args, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
