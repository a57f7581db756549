"""Signed run folders: who vouches for these results, and whether a byte has changed since.

The statement that is signed names every file of the folder with the sha256 of its bytes, and every
result with that of its canonical JSON, by which it is known wherever it is copied to. Signatures
are Ed25519, by the package cryptography.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stockpot.errors import UserError
from stockpot.files import write_atomic

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE = "signature.json"
PROTOCOL = "stockpot-signature/1"


@dataclass(frozen=True)
class Signed:
    """A signature that holds."""

    key: str
    """The public key in hex."""
    files: int


def canonical(document: Any) -> bytes:
    """JSON with sorted keys and nothing between them: one text for one value."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def new_key(path: Path) -> str:
    """Write a new private key that only its owner reads; returns the public one."""
    if path.exists():
        raise UserError(f"{path} exists already.", hint="A key is never overwritten.")
    _, serialization, ed25519 = _library()
    private = ed25519.Ed25519PrivateKey.generate()
    text = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(text)
    public: str = private.public_key().public_bytes_raw().hex()
    return public


def sign(folder: Path, key: Path) -> Signed:
    """Sign all that a folder holds; an earlier signature is replaced."""
    if folder.resolve() in key.resolve().parents:
        raise UserError(f"{key} lies in the folder that is signed, and would go out with it.")
    private = _private(key)
    statement = _statement(folder)
    if not statement["results"]:
        raise UserError(f"{folder} holds no results to sign.", hint="Give the folder of a run.")
    public = private.public_key().public_bytes_raw().hex()
    document = {
        "statement": statement,
        "key": public,
        "signature": private.sign(canonical(statement)).hex(),
    }
    write_atomic(folder / SIGNATURE, json.dumps(document, indent=1) + "\n")
    return Signed(public, len(statement["files"]))


def verify(folder: Path, key: str | None = None) -> Signed:
    """Check that a folder is as it was signed, and by whom; an error names what is not.

    Args:
        folder: what was signed.
        key: the public key in hex that must have signed; any when left out.
    """
    try:
        document = json.loads((folder / SIGNATURE).read_text(encoding="utf-8"))
        statement, public = document["statement"], str(document["key"])
        mark, raw = bytes.fromhex(document["signature"]), bytes.fromhex(public)
        files, results = dict(statement["files"]), dict(statement["results"])
    except FileNotFoundError as problem:
        raise UserError(
            f"{folder} is not signed.", hint="Sign it with `stockpot sign DIR --key FILE`."
        ) from problem
    except (ValueError, KeyError, TypeError) as problem:
        raise UserError(f"{folder / SIGNATURE} is no signature: {problem!r}.") from problem
    invalid, _, ed25519 = _library()
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(raw).verify(mark, canonical(statement))
    except (invalid.InvalidSignature, ValueError) as problem:
        raise UserError(f"{folder / SIGNATURE} was changed: its signature is false.") from problem
    if key is not None and key.lower() != public:
        raise UserError(f"{folder} was signed by the key {public}, not by {key}.")
    found = _statement(folder)
    for name in sorted({*files, *found["files"]}):
        if name not in found["files"]:
            raise UserError(f"{folder / name} is missing since it was signed.")
        if name not in files:
            raise UserError(f"{folder / name} was added after the folder was signed.")
        if files[name] != found["files"][name]:
            raise UserError(f"{folder / name} was changed after it was signed.")
    if results != found["results"]:
        raise UserError(f"{folder / SIGNATURE} names other results than the folder holds.")
    return Signed(public, len(files))


def _statement(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise UserError(f"expected the folder of a run, and {folder} is none.")
    files, results = {}, {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name == SIGNATURE:
            continue
        content = path.read_bytes()
        files[name] = hashlib.sha256(content).hexdigest()
        if path.suffix == ".json":
            try:
                document = json.loads(content)
            except ValueError:
                continue
            if isinstance(document, dict) and "schema_version" in document:
                results[name] = hashlib.sha256(canonical(document)).hexdigest()
    return {"protocol": PROTOCOL, "files": files, "results": results}


def _private(path: Path) -> Ed25519PrivateKey:
    _, serialization, ed25519 = _library()
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except FileNotFoundError as problem:
        raise UserError(
            f"no key at {path}.", hint="Make one with `stockpot sign DIR --key FILE --new-key`."
        ) from problem
    except (ValueError, TypeError) as problem:
        raise UserError(f"{path} is no private key in PEM without a password.") from problem
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise UserError(f"{path}: expected an Ed25519 key, got {type(key).__name__}.")
    return cast("Ed25519PrivateKey", key)


def _library() -> tuple[Any, Any, Any]:
    try:
        from cryptography import exceptions
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as problem:
        raise UserError(
            "signatures need the package cryptography.", hint="pip install 'stockpot[sign]'"
        ) from problem
    return exceptions, serialization, ed25519
