"""Pages whose commands are run: what stands below `$ COMMAND` is what it prints.

    python docs/site/transcripts.py docs/tutorial.md          # writes the outputs anew
    python docs/site/transcripts.py docs/tutorial.md --check  # says where a page is no longer true

In order, in one empty folder: a fenced block with a title is a file and is written there, one of
Python without a title is executed, and each line `$ stockpot ...` of a console block is run as the
command line is, its output (100 columns, not a terminal) put below. Two outputs are the same where
their words are equal and their numbers close: other processors round differently, and seconds are
nobody's.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
TIME = re.compile(r"\d[\d.]* (?:s|min|h)\b(?: \d+ (?:s|min)\b)?")
WORD = re.compile(r"[A-Za-z_][\w-]*")
DIGEST = re.compile(r"\b[0-9a-f]{12,64}\b")
WIDTH = "100"
PASSING = re.compile(r"  .+: [\d,]+ of [\d,]+ \(\d+ %\)")
"""A line of progress, which comes every ten seconds: a quicker machine prints none."""
FOLDER = "/home/you/folder"
"""Stands for the folder of the run, whose name is as long: it decides where tables break."""

Invoke = Callable[[list[str]], str]


def run_page(text: str, invoke: Invoke) -> str:
    """The page with the output of its commands; what they need is made in the current folder."""

    def ran(match: re.Match[str]) -> str:
        language, title, body = match.groups()
        if title:
            Path(title).parent.mkdir(parents=True, exist_ok=True)
            Path(title).write_text(body, encoding="utf-8")
        elif language == "python":
            exec(compile(body, "page", "exec"), {"__name__": "page"})
        elif language == "console":
            commands = re.findall(r"^\$ ((?:.*\\\n)*.*)$", body, flags=re.MULTILINE)
            parts = [f"$ {one}\n{_output(one, invoke)}" for one in commands]
            return f"```console\n{''.join(parts)}```"
        return match[0]

    return BLOCK.sub(ran, text)


def _output(command: str, invoke: Invoke) -> str:
    program, *words = shlex.split(command.replace("\\\n", " "))
    if program != "stockpot":
        raise ValueError(f"only stockpot is run, got {command!r}")
    text = invoke(words).replace(str(Path.cwd()), FOLDER)
    lines = [line.rstrip() for line in text.strip("\n").splitlines() if not PASSING.match(line)]
    return "".join(f"{line}\n" for line in lines)


def difference(shown: str, printed: str) -> str:
    """The first line in which two outputs tell different things; nothing where none does."""
    ours, theirs = shown.splitlines(), printed.splitlines()
    for number in range(max(len(ours), len(theirs))):
        one, other = ((*lines[number : number + 1], "")[0] for lines in (ours, theirs))
        if not _alike(one, other):
            return f"shown:   {one}\nprinted: {other}"
    return ""


def other_words(shown: str, printed: str) -> str:
    """The first command whose words are others; numbers, and where lines break by them, are not.

    This is what can be asked of outputs on fewer pictures.
    """
    for one, other in zip(_commands(shown), _commands(printed), strict=True):
        ours, theirs = (Counter(WORD.findall(_plain(text))) for text in (one, other))
        if ours != theirs:
            lost, new = (sorted((a - b).elements()) for a, b in ((ours, theirs), (theirs, ours)))
            return f"{one.splitlines()[0]}\nshown only: {lost}\nprinted only: {new}"
    return ""


def _commands(text: str) -> list[str]:
    return re.findall(r"^\$ .*?(?=^\$ |^```)", text, flags=re.MULTILINE | re.DOTALL)


def _plain(text: str) -> str:
    return DIGEST.sub("digest", TIME.sub("time", text))


def _alike(one: str, other: str) -> bool:
    one, other = _plain(one), _plain(other)
    words = [NUMBER.sub("#", " ".join(text.split())) for text in (one, other)]
    numbers = [[float(n.replace(",", "")) for n in NUMBER.findall(t)] for t in (one, other)]
    close = (abs(a - b) <= max(1.0, 0.03 * abs(a)) for a, b in zip(*numbers, strict=False))
    return words[0] == words[1] and all(close)


@contextlib.contextmanager
def empty_folder() -> Iterator[Path]:
    """A folder to run a page in."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def in_this_process(words: list[str]) -> str:
    """What a command prints on both streams."""
    from typer.testing import CliRunner

    from stockpot.cli.main import app

    done = CliRunner().invoke(app, words, env={"COLUMNS": WIDTH})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code:
        raise SystemExit(f"stockpot {shlex.join(words)}: exit code {done.exit_code}\n{done.output}")
    return done.output


def main() -> None:
    """Write or check the pages that are named."""
    check = "--check" in sys.argv
    pages = [Path(word).resolve() for word in sys.argv[1:] if word != "--check"]
    os.environ["COLUMNS"] = WIDTH
    wrong = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        with empty_folder(), contextlib.redirect_stdout(io.StringIO()):
            printed = run_page(text, in_this_process)
        if not check:
            page.write_text(printed, encoding="utf-8")
        elif found := difference(text, printed):
            wrong.append(f"{page.name}:\n{found}")
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
