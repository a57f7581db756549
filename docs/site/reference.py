"""Pages that code writes: every command with its help, every method with its parameters."""

from __future__ import annotations

import typer
from click import Context, Group

from stockpot.cli.main import app
from stockpot.registries import KINDS, registry
from stockpot.registry import Parameter


def commands() -> str:
    """Every command as `--help` prints it."""
    root = typer.main.get_command(app)
    lines = [
        "# Commands",
        "",
        "What `stockpot COMMAND --help` prints, in alphabetical order. Exit codes: 0 done, "
        "1 something you can fix (one line says what), 2 usage, 3 some cells failed and the rest "
        "is saved, 4 a check found the model worse, 130 stopped by Ctrl-C, 143 by SIGTERM.",
        "",
    ]
    lines += _helps(root, "stockpot")
    return "\n".join(lines)


def _helps(command: object, path: str) -> list[str]:
    lines: list[str] = []
    if not isinstance(command, Group):
        return lines
    for name in sorted(command.commands):
        inner = command.commands[name]
        full = f"{path} {name}"
        if isinstance(inner, Group):
            lines += _helps(inner, full)
            continue
        context = Context(inner, info_name=full, terminal_width=100, max_content_width=100)
        lines += [f"## {full}", "", "```text", inner.get_help(context).rstrip(), "```", ""]
    return lines


def methods() -> str:
    """Every registered method with its first line, parameters, defaults and paper."""
    lines = ["# Methods and their parameters", ""]
    lines += ["What `stockpot list KIND` and `stockpot show NAME` know, all at once.", ""]
    for kind in KINDS:
        if kind == "zoo":
            continue
        entries = registry(kind)
        lines += [f"## {kind}", ""]
        for name in entries.names():
            entry = entries.get(name)
            paper = f" ({entry.paper})" if entry.paper else ""
            lines += [f"### `{name}` {{: #{kind}-{name} }}", "", f"{entry.summary}{paper}", ""]
            if entry.parameters:
                lines += ["| parameter | default | what it is |", "|---|---|---|"]
                lines += [
                    f"| `{each.name}` | {_default(each)} | {_cell(each.doc)} |"
                    for each in entry.parameters
                ]
                lines.append("")
    return "\n".join(lines)


def _default(parameter: Parameter) -> str:
    if parameter.required:
        return "required"
    return f"`{_cell(str(parameter.default))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
