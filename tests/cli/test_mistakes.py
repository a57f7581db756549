"""Options that cannot be met are answered in one line, and none is silently ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import invoke


@pytest.mark.parametrize("device", ["nonsense", "meta"])
@pytest.mark.parametrize(
    "words",
    [
        ("fuse", "average", "icons-vit-plain", "icons-vit-colour"),
        ("measure", "icons-vit", "--data", "icons", "--limit", "8"),
        ("harden", "nominal", "icons-vit", "--data", "icons"),
        ("season", "greedy", "icons-vit-plain", "icons-vit-colour", "--data", "icons"),
        ("explain", "icons-vit", "--data", "icons"),
    ],
)
def test_a_device_that_is_not_there_is_said_in_one_line(
    words: tuple[str, ...], device: str, tmp_path: Path
) -> None:
    result = invoke(*words, "--device", device, "-o", str(tmp_path / "out.png"))
    assert result.exit_code == 1
    assert f"got {device!r}" in result.output
    assert not (tmp_path / "out.png").exists()


def test_what_stands_under_d_is_not_overruled() -> None:
    done = invoke("measure", "icons-vit", "--data", "icons", "-d", "split=none", "--limit", "8")
    assert done.exit_code == 1
    assert "none" in done.output


def test_a_picture_needs_a_kind(tmp_path: Path) -> None:
    done = invoke("explain", "icons-vit", "--data", "icons", "-o", tmp_path / "e.nosuch")
    assert done.exit_code == 1
    assert "e.png" in done.output
