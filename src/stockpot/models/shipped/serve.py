"""A small server of one model, the reference for the protocol `npy` of `endpoint.py`."""

from __future__ import annotations

import io
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

import numpy as np
import torch

from stockpot.models.classifier import Classifier, evaluating
from stockpot.models.shipped.endpoint import NPY
from stockpot.models.shipped.stated import PLAIN, stated

MOST = 256 * 2**20
"""Bytes of one request at most."""


def server_of(model: Classifier, host: str = "127.0.0.1", port: int = 0) -> ThreadingHTTPServer:
    """A server that waits for `serve_forever`; port 0 is any that is free."""
    # The model normalises behind this door: outside, pixels are in [0, 1].
    outside = stated(model.preprocess, model.classes) | dict(PLAIN)
    description = json.dumps(outside | {"fingerprint": model.origin.fingerprint}).encode()
    alone = Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Headers and body in one packet: sent apart, the second waits 40 ms for an acknowledgement.
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._send(200, "application/json", description)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 < length <= MOST:
                self.close_connection = True
                self._send(413, "text/plain", f"expected up to {MOST} bytes".encode())
                return
            body = self.rfile.read(length)
            try:
                pixels = np.load(io.BytesIO(body), allow_pickle=False)
                wanted = (3, *model.preprocess.size)
                if pixels.dtype != np.float32 or pixels.ndim != 4 or pixels.shape[1:] != wanted:
                    raise ValueError(
                        f"expected float32 pixels N x {' x '.join(map(str, wanted))}, got "
                        f"{pixels.dtype} {pixels.shape}"
                    )
                with alone, evaluating(model):
                    logits = model(torch.from_numpy(pixels).to(model.device)).float().cpu()
            except (ValueError, EOFError) as problem:
                self._send(400, "text/plain", str(problem).encode())
                return
            stream = io.BytesIO()
            np.save(stream, logits.numpy())
            self._send(200, NPY, stream.getvalue())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not news."""

    return ThreadingHTTPServer((host, port), Handler)
