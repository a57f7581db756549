"""What a command does not need it does not import; what it took stands in its result."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from pkgutil import iter_modules

from commands import invoke
from stockpot import cli
from stockpot.cli.commands import Commands
from stockpot.results.store import load_results

HEAVY = ("transformers", "scipy", "datasets", "torch._dynamo", "torch.distributed.tensor", "sympy")


def test_measuring_a_resnet_on_icons_imports_no_heavy_package() -> None:
    code = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "from stockpot.cli.main import app\n"
        "app(['measure', 'icons-resnet', '--data', 'icons', '--limit', '8', '--json'],\n"
        "    standalone_mode=False)\n"
        f"print('heavy:', sorted(set({HEAVY!r}) & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "heavy: []" in done.stdout, done.stdout[-300:]


def test_a_command_imports_no_other_and_every_file_has_one() -> None:
    code = (
        "import sys, typer\n"
        "from stockpot.cli.main import app\n"
        "typer.main.get_command(app).commands['show']\n"
        "print(*[n for n in ('show', 'fuse', 'data') if f'stockpot.cli.{n}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "show\n"
    files = [importlib.import_module(f"stockpot.cli.{m.name}") for m in iter_modules(cli.__path__)]
    named = {module.NAME for module in files if hasattr(module, "NAME")}
    groups = {"data", "results", "runs"}
    assert set(Commands()) == named | groups
    assert [command.name for command in Commands().values()] == list(Commands())


def test_a_run_says_where_its_time_went(tmp_path: Path) -> None:
    out, trace = tmp_path / "run", tmp_path / "trace.json"
    done = invoke(
        "measure", "icons-resnet", "--data", "icons", "--limit", "6", "-o", out,
        "--with", "clean,corruption", "-p", "corruption.corruptions=brightness",
        "-p", "corruption.severities=1", "--profile", trace, "--batch-size", "3",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    cells = load_results(out)
    stages = [cell.cost.stages for cell in cells]
    assert all({"load", "decode", "forward", "score"} <= set(one) for one in stages)
    by_measure = {cell.key.measure: cell.cost.stages for cell in cells}
    assert by_measure["corruption"]["corrupt"] > 0
    assert "stages" not in cells[0].key.model_dump()
    # Both measures, two batches each, of clean and once corrupted pictures.
    events = json.loads(trace.read_text())["traceEvents"]
    forwards = [event for event in events if event["name"] == "forward"]
    assert len(forwards) == 2 + 2 * 2
    assert all({"ph", "ts", "dur", "pid", "tid"} <= set(event) for event in forwards)
    page = invoke("report", out, "-o", tmp_path / "page.html")
    assert page.exit_code == 0, page.output
    assert "<h2>Where the time went</h2>" in (tmp_path / "page.html").read_text()


def test_results_without_stages_still_open(tmp_path: Path) -> None:
    out = tmp_path / "run"
    invoke("measure", "icons-resnet", "--data", "icons", "--limit", "4", "-o", out)
    (path,) = (out / "results").glob("*.json")
    document = json.loads(path.read_text())
    assert document["cost"].pop("stages")
    path.write_text(json.dumps(document))
    (cell,) = load_results(out)
    assert cell.cost.stages == {}
    again = invoke("measure", "icons-resnet", "--data", "icons", "--limit", "4", "-o", out)
    assert again.exit_code == 0
    assert json.loads(path.read_text()) == document  # read back, not measured again
