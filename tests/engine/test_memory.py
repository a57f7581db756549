"""Settings of a whole process are the program's: a library call makes none."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import ctypes, sys
asked = []
real = ctypes.CDLL
class Library:
    def __init__(self, name): pass
    def mallopt(self, *given): asked.append(given); return 1
ctypes.CDLL = lambda name, *a, **k: Library(name) if name is None else real(name, *a, **k)
{body}
print(len(asked))
"""


def _settings_made(body: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(body=body)], capture_output=True, text=True, check=True
    )
    return int(done.stdout.splitlines()[-1])


def test_an_attack_leaves_the_allocator_alone() -> None:
    body = (
        "import torch, stockpot\n"
        "net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))\n"
        "stockpot.attack(net, torch.rand(2, 3, 2, 2), torch.tensor([0, 1]), steps=2)"
    )
    assert _settings_made(body) == 0


def test_the_command_sets_it_for_its_process() -> None:
    body = (
        "sys.argv = ['stockpot', 'list', 'attacks']\n"
        "from stockpot.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass"
    )
    assert _settings_made(body) == 2
