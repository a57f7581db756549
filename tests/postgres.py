"""A PostgreSQL server of the machine's own package, started for tests in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

NONE = "no PostgreSQL server is installed"


def programs() -> Path | None:
    """Where `initdb` lies: on the PATH, or where Debian puts it."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    return next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


@contextmanager
def server() -> Iterator[str]:
    """The URL of a running server, reached by a socket in its own folder."""
    found = programs()
    assert found is not None
    folder = Path(tempfile.mkdtemp(prefix="stockpot-pg-", dir="/tmp"))  # a socket's path is short
    user = _other_user()
    if user:
        shutil.chown(folder, user)
    data = folder / "data"
    subprocess.run(
        [found / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-locale",
         "--no-sync"],
        check=True, capture_output=True, user=user, cwd=folder,
    )  # fmt: skip
    fast = [f"-c{one}" for one in ("fsync=off", "shared_buffers=16MB", "listen_addresses=")]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [found / "postgres", "-D", data, "-k", folder, *fast],
            stdout=log, stderr=log, user=user, cwd=folder,
        )  # fmt: skip
    try:
        url = f"postgresql://tester@/postgres?host={folder}"
        _wait(process, url, folder / "log")
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        shutil.rmtree(folder)


def database(url: str, name: str) -> str:
    """The URL of a new, empty database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return url.replace("/postgres?", f"/{name}?")


def _other_user() -> str | None:
    """The server refuses to be root's."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in known else "nobody"


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
