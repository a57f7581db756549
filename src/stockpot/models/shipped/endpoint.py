"""A model behind an HTTP endpoint: `http://host:port/path`.

Two protocols, both of which anyone can serve (`docs/shipped.md`):

- `npy`: `GET` may describe the model (JSON with the keys of `stated.py`, and `fingerprint`);
  `POST` takes a `.npy` of N x 3 x H x W float32 pixels in [0, 1] and gives N x classes logits back
  as `.npy`, or as JSON `{"logits": [[...], ...]}`;
- `v2`: the Open Inference Protocol as KServe, Triton and others speak it; the address is that of
  the model, `http://host:port/v2/models/NAME`.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import socket
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from stockpot.checkpoints.resolve import Resolved
from stockpot.datasets.stream.geometry import Interpolation
from stockpot.errors import BadParameterError, UserError
from stockpot.models.classifier import Classifier
from stockpot.models.shipped.answers import Pixels
from stockpot.models.shipped.functions import asking
from stockpot.models.shipped.stated import PLAIN, Said, settled

Protocol = Literal["npy", "v2"]
NPY = "application/x-npy"
TOKEN = "STOCKPOT_ENDPOINT_TOKEN"
"""The environment variable with a bearer token; an option would end up in results."""
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_PAUSE = 0.25


class EndpointError(UserError):
    """An endpoint that could not be reached, or gave no logits."""


def load_endpoint(
    place: Resolved,
    *,
    protocol: Protocol = "npy",
    classes: Sequence[str] | None = None,
    size: int | Sequence[int] | None = None,
    resize: int | None = None,
    squash: bool | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    interpolation: Interpolation | None = None,
    batch: int = 32,
    timeout: float = 30.0,
    retries: int = 3,
    name: str = "",
) -> Classifier:
    """A model that a server answers for.

    Args:
        place: its address.
        protocol: `npy` or `v2`.
        classes: class names in output order.
        size: the side of the square that it takes, or height and width.
        resize: the short side before the centre crop; `size` when left out.
        squash: resize straight to the size instead, losing the aspect ratio.
        mean: subtracted from pixels in [0, 1]; nothing by default.
        std: divides the pixels after that.
        interpolation: how pictures are resized.
        batch: images per request at most.
        timeout: seconds to wait for an answer.
        retries: further tries where the server is not there, is busy or breaks.
        name: the name under which the model appears in results.
    """
    if protocol not in ("npy", "v2") or batch < 1 or timeout <= 0 or retries < 0:
        raise BadParameterError(
            "expected protocol npy or v2, batch >= 1, timeout > 0 and retries >= 0, got "
            f"{protocol}, {batch}, {timeout:g} and {retries}."
        )
    server = Server(place.text, batch, timeout, retries)
    ask = Npy(server) if protocol == "npy" else OpenInference(server)
    said = ask.said()
    given = {
        "classes": classes, "size": size, "resize": resize, "squash": squash,
        "mean": mean, "std": std, "interpolation": interpolation,
    }  # fmt: skip
    if "size" not in said and size is None:
        raise BadParameterError(
            f"{place.text} does not say which size it takes.", hint="Give -m size=N."
        )
    named, preprocess = settled(place.text, given, said, PLAIN)
    return asking(
        ask, place.text, named, preprocess,
        kind=f"HTTP endpoint, {protocol}", source=name or place.text,
        fingerprint=str(said.get("fingerprint") or ""),
    )  # fmt: skip


class Reply(NamedTuple):
    """What a server sent."""

    status: int
    kind: str
    body: bytes


class Server:
    """One kept connection to an address, opened anew where it breaks."""

    def __init__(self, address: str, batch: int, timeout: float, retries: int) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadParameterError(f"expected http://HOST[:PORT]/PATH, got {address!r}.")
        self.address, self.batch = address, batch
        self._parts, self._timeout, self._retries = parts, timeout, retries
        self._connection: http.client.HTTPConnection | None = None

    def send(self, method: str, path: str = "", body: bytes = b"", kind: str = "") -> Reply:
        """One request, tried again with growing pauses where a later try may succeed."""
        for attempt in range(self._retries + 1):
            if attempt:
                time.sleep(_PAUSE * 2 ** (attempt - 1))
            try:
                reply = self._once(method, path, body, kind)
            except (OSError, http.client.HTTPException) as problem:
                self._close()
                why = f"no answer in {self._timeout:g} s" if _late(problem) else _reason(problem)
            else:
                if reply.status not in _AGAIN:
                    return reply
                why = f"it answers with status {reply.status}"
        tries = self._retries + 1
        raise EndpointError(
            f"{self.address}: {why} ({tries} {'try' if tries == 1 else 'tries'}).",
            hint="Is the server running? -m timeout=SECONDS and -m retries=N wait longer.",
        )

    def _once(self, method: str, path: str, body: bytes, kind: str) -> Reply:
        parts = self._parts
        if self._connection is None:
            secure = parts.scheme == "https"
            make = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._connection = make(parts.hostname or "", parts.port, timeout=self._timeout)
        headers = {"Accept": f"{NPY}, application/json"}
        if kind:
            headers["Content-Type"] = kind
        if token := os.environ.get(TOKEN):
            headers["Authorization"] = f"Bearer {token}"
        query = f"?{parts.query}" if parts.query else ""
        target = (parts.path.rstrip("/") + path if path else parts.path) or "/"
        self._connection.request(method, target + query, body=body or None, headers=headers)
        answer = self._connection.getresponse()
        content = answer.read()
        return Reply(answer.status, answer.headers.get_content_type(), content)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def refuse(self, reply: Reply) -> EndpointError:
        """What is said of an answer that is none."""
        told = " ".join(reply.body[:200].decode(errors="replace").split())
        return EndpointError(
            f"{self.address}: expected logits, got status {reply.status} ({reply.kind}): "
            f"{told[:120] or 'nothing'}."
        )


class Npy:
    """The protocol `npy`."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def said(self) -> Said:
        """What the server says of its model; a server need not."""
        return _object(self._server.send("GET"))

    def __call__(self, pixels: Pixels) -> Any:
        size = self._server.batch
        parts = [self._part(pixels[start : start + size]) for start in range(0, len(pixels), size)]
        return np.concatenate(parts)

    def _part(self, pixels: Pixels) -> Any:
        stream = io.BytesIO()
        np.save(stream, pixels)
        reply = self._server.send("POST", body=stream.getvalue(), kind=NPY)
        try:
            if reply.status != 200:
                raise ValueError
            if reply.kind == "application/json":
                return np.asarray(json.loads(reply.body)["logits"], dtype=np.float32)
            return np.load(io.BytesIO(reply.body), allow_pickle=False)
        except (ValueError, KeyError, TypeError, EOFError):
            raise self._server.refuse(reply) from None


class OpenInference:
    """The protocol `v2`, with numbers as JSON."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._input = "pixels"

    def said(self) -> Said:
        """The size of the input, and its name, from the model's metadata."""
        found = _object(self._server.send("GET"))
        inputs = found.get("inputs") or [{}]
        self._input = str(inputs[0].get("name") or self._input)
        shape = [int(side) for side in inputs[0].get("shape") or ()]
        fixed = len(shape) == 4 and min(shape[2:]) > 0
        return {"size": shape[2:]} if fixed else {}

    def __call__(self, pixels: Pixels) -> Any:
        size = self._server.batch
        parts = [self._part(pixels[start : start + size]) for start in range(0, len(pixels), size)]
        return np.concatenate(parts)

    def _part(self, pixels: Pixels) -> Any:
        request = {
            "inputs": [
                {
                    "name": self._input,
                    "shape": list(pixels.shape),
                    "datatype": "FP32",
                    "data": pixels.reshape(-1).tolist(),
                }
            ]
        }
        body = json.dumps(request).encode()
        reply = self._server.send("POST", "/infer", body=body, kind="application/json")
        try:
            if reply.status != 200:
                raise ValueError
            output = json.loads(reply.body)["outputs"][0]
            return np.asarray(output["data"], dtype=np.float32).reshape(output["shape"])
        except (ValueError, KeyError, IndexError, TypeError):
            raise self._server.refuse(reply) from None


def _object(reply: Reply) -> dict[str, Any]:
    """A JSON object; empty where the server describes nothing."""
    if reply.status != 200 or reply.kind != "application/json":
        return {}
    try:
        found = json.loads(reply.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _late(problem: Exception) -> bool:
    return isinstance(problem, TimeoutError | socket.timeout)


def _reason(problem: Exception) -> str:
    return str(getattr(problem, "strerror", None) or problem) or type(problem).__name__
