"""Models as they ship: ONNX files, exported programs, endpoints and functions are measured like any
other, by what they answer; what needs a gradient of them says so.

The model is the same everywhere: the mean of each colour channel is the logit of that colour. What
it answers, and how far an attack can move that, is known without running anything.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import stockpot
from commands import invoke
from stockpot.errors import UserError
from stockpot.models.shipped import endpoint
from stockpot.models.shipped.serve import server_of

CLASSES = ["red", "green", "blue"]
SIDE, COUNT = 16, 24
EPS = 4 / 255
PLAIN = {"classes": CLASSES, "mean": [0, 0, 0], "std": [1, 1, 1]}


def pictures() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grey pictures with more of one colour, labels of which a quarter is wrong, and colours."""
    chance = np.random.default_rng(0)
    images = chance.integers(90, 100, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
    colour = np.arange(COUNT) % 3
    for row, own in enumerate(colour):
        images[row, ..., own] += 1 if row < 12 else 40  # within reach of EPS, and far beyond
    labels = colour.copy()
    labels[::4] = (labels[::4] + 1) % 3
    return images, labels, colour


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    images, labels, _ = pictures()
    file = tmp_path_factory.mktemp("data") / "colours.npz"
    np.savez(file, images=images, labels=labels, classes=np.array(CLASSES))
    return file


def meant(mean: float = 0.0, std: float = 1.0) -> np.ndarray:
    """The logits: means of the channels of normalised pixels."""
    images, _, _ = pictures()
    return (images.astype(np.float64) / 255).mean((1, 2)) / std - mean / std


def accuracy() -> float:
    _, labels, colour = pictures()
    return float((labels == colour).mean())


def tensors() -> torch.Tensor:
    images, _, _ = pictures()
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255


def onnx_file(
    path: Path,
    shape: list[Any],
    *,
    kind: int = TensorProto.FLOAT,
    said: dict[str, Any] | None = None,
) -> Path:
    """A file written by hand, without an exporter: the mean over both sides."""
    last = shape[3] == 3
    axes = helper.make_tensor("axes", TensorProto.INT64, [2], [1, 2] if last else [2, 3])
    nodes = [
        helper.make_node("Cast", ["pixels"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["floats", "axes"], ["logits"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "means",
        [helper.make_tensor_value_info("pixels", kind, shape)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [shape[0], 3])],
        [axes],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    if said:
        helper.set_model_props(model, {"stockpot": json.dumps(said)})
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("onnx")
    return onnx_file(folder / "means.onnx", ["n", 3, SIDE, SIDE], said=PLAIN)


def squares(source: Any, data: Path, **options: Any) -> dict[str, stockpot.results.CellResult]:
    measures = {
        "clean": {},
        "corruption": {"corruptions": "brightness", "severities": 1, "baseline": "none"},
        "adversarial": {"method": "square", "steps": 60, "norms": "linf", "eps": "4/255"},
        "cost": {"batch": 2, "repeats": 3},
    }
    found = stockpot.measure({"it": source}, measures, data=data, model_options=options)
    return {cell.key.measure: cell for cell in found}


def check(found: dict[str, Any]) -> None:
    """What every way of shipping the model must give."""
    _, labels, colour = pictures()
    assert found["clean"].score("accuracy").value == accuracy()
    assert found["corruption"].score("mean_corruption_accuracy").value == accuracy()
    # Near ones: the margin of 1/255 is below EPS, so that half the pixels moved suffice to fall.
    # Far ones: no change of every pixel by EPS moves two means together by 40/255.
    far = (labels == colour) & (np.arange(COUNT) >= 12)
    assert found["adversarial"].score("robust_accuracy").value == far.mean()
    assert not {"parameters", "flops_per_image"} & {s.metric for s in found["cost"].scores}
    assert str(found["clean"].forward) == "fp32"


def test_an_onnx_file_is_measured(shipped: Path, data: Path) -> None:
    found = squares(shipped, data)
    check(found)
    facts = found["clean"].model
    assert (facts.architecture, facts.source) == ("ONNX", str(shipped))
    assert "resize 16" in facts.preprocessing
    for defence, measure in (("ten_crop", "clean"), ("zero", "stream")):
        options = {"defend": {defence: {"views": 4} if defence == "zero" else {}}}
        own = {measure: {"severity": 0, "attacked": 2} if measure == "stream" else {}}
        (cell,) = stockpot.measure(shipped, own, data=data, model_options=options)
        assert cell.score("accuracy").value == accuracy()
    assert {s.condition.get("attack") for s in cell.scores} >= {"square-500"}


def test_what_needs_gradients_says_so_in_one_line(shipped: Path, data: Path) -> None:
    one = ("measure", shipped, "--data", data)
    done = invoke(*one, "--with", "adversarial")
    assert done.exit_code == 1
    assert "gives answers and no gradients" in done.output
    assert "method=square" in done.output
    done = invoke(*one, "--with", "stream", "-m", "defend=tent")
    assert done.exit_code == 1
    assert "tent" in done.output
    assert "can only be asked" in done.output


def test_weights_beside_an_onnx_file_are_part_of_it_by_whatever_name(tmp_path: Path) -> None:
    model = onnx.load(onnx_file(tmp_path / "means.onnx", ["n", 3, SIDE, SIDE], said=PLAIN))
    values = onnx.numpy_helper.from_array(np.ones(300, np.float32), "of no account")
    model.graph.initializer.append(values)
    onnx.save(model, tmp_path / "large.onnx", save_as_external_data=True, location="w.bin")
    known = []
    for first, beside in ((1, "x"), (1, "y"), (2, "y")):
        (tmp_path / "w.bin").write_bytes(np.full(300, first, np.float32).tobytes())
        (tmp_path / "means.bin").write_text(beside, encoding="utf-8")  # of some other model
        known.append(stockpot.models.load.identify(str(tmp_path / "large.onnx")))
    assert known[0] == known[1] != known[2]


@pytest.mark.parametrize(
    ("shape", "kind"),
    [([4, SIDE, SIDE, 3], TensorProto.UINT8), (["n", SIDE, SIDE, 3], TensorProto.FLOAT16)],
)
def test_layouts_number_types_and_fixed_batches(tmp_path: Path, shape: Any, kind: int) -> None:
    file = onnx_file(tmp_path / "means.onnx", shape, kind=kind)
    scale = 255 if kind == TensorProto.UINT8 else 1
    with torch.no_grad():
        found = stockpot.load_model(file, **PLAIN)(tensors())
    assert torch.allclose(found, torch.from_numpy(meant() * scale).float(), rtol=2e-3)


def test_preprocessing_is_stated_or_asked_for(tmp_path: Path) -> None:
    file = onnx_file(tmp_path / "means.onnx", ["n", 3, "h", "w"])
    with pytest.raises(UserError, match=r"mean, std, size.*-m mean=R,G,B"):
        stockpot.load_model(file)
    before = stockpot.models.load.identify(file)
    said = PLAIN | {"mean": [0.5] * 3, "std": [0.25] * 3, "size": SIDE}
    (tmp_path / "means.onnx.json").write_text(json.dumps(said), encoding="utf-8")
    model = stockpot.load_model(file)
    assert model.classes == tuple(CLASSES)
    with torch.no_grad():
        found = model(tensors()).numpy()
    assert np.allclose(found, meant(0.5, 0.25), atol=1e-5)
    # What is said of a file is a part of who it is, as its own bytes are.
    assert stockpot.models.load.identify(file) != before
    with torch.no_grad():  # an option is stronger than what lies beside
        found = stockpot.load_model(file, mean=[0, 0, 0], std=[1, 1, 1])(tensors()).numpy()
    assert np.allclose(found, meant(), atol=1e-6)
    (tmp_path / "means.onnx.json").write_text(json.dumps({"means": 0}), encoding="utf-8")
    with pytest.raises(UserError, match="unknown key 'means'"):
        stockpot.load_model(file)


def ask_means(pixels: np.ndarray) -> np.ndarray:
    assert pixels.dtype == np.float32
    assert 0 <= pixels.min() <= pixels.max() <= 1
    return pixels.mean((2, 3))


def test_a_function_is_measured_and_known_by_its_answers(data: Path, tmp_path: Path) -> None:
    check(squares(ask_means, data, classes=CLASSES, size=SIDE))
    own = stockpot.load_model(ask_means, size=SIDE)
    same = stockpot.load_model(lambda pixels: ask_means(pixels), size=SIDE)
    other = stockpot.load_model(lambda pixels: 2 * ask_means(pixels) ** 2, size=SIDE)
    known = [stockpot.models.load.identify(model) for model in (own, same, other)]
    assert known[0] == known[1] != known[2]
    module = tmp_path / "mine.py"
    module.write_text(
        "def make(scale):\n    return lambda pixels: scale * pixels.mean((2, 3))",
        encoding="utf-8",
    )
    options = (
        "-m",
        "arguments={scale: 2}",
        "-m",
        f"size={SIDE}",
        "-m",
        f"classes={','.join(CLASSES)}",
    )
    done = invoke("measure", f"{module}:make", "--data", data, *options, "--json")
    assert json.loads(done.output[done.output.index("[{") :])[0]["scores"][0]["value"] == accuracy()


def test_a_module_keeps_its_gradients() -> None:
    class Means(nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return pixels.mean((2, 3))

    pixels = tensors().requires_grad_()
    stockpot.load_model(Means(), size=SIDE)(pixels)[:, 0].sum().backward()
    assert pixels.grad is not None
    assert torch.allclose(pixels.grad[:, 0], torch.tensor(1 / SIDE**2))


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/models/means"
    finally:
        server.shutdown()
        server.server_close()


def test_an_endpoint_is_measured(shipped: Path, data: Path) -> None:
    """Over a real connection; the server says sizes, classes and who it is."""
    model = stockpot.load_model(shipped)
    with serving(server_of(model)) as address:
        found = squares(address, data, batch=7)
        check(found)
        assert found["clean"].model.architecture == "HTTP endpoint, npy"
        assert found["clean"].key.model_fingerprint == model.origin.fingerprint
        with pytest.raises(UserError, match=r"status 400.*expected float32 pixels"):
            stockpot.load_model(address, size=SIDE + 1)


class Script(BaseHTTPRequestHandler):
    """Answers as its list says, one entry for each request."""

    answers: list[Callable[[bytes], tuple[int, str, bytes]]]

    def do_GET(self) -> None:
        self._say(404, "text/plain", b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._say(*self.answers.pop(0)(body))

    def _say(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


def npy(body: bytes) -> tuple[int, str, bytes]:
    logits = np.load(io.BytesIO(body)).mean((2, 3))
    return 200, "application/json", json.dumps({"logits": logits.tolist()}).encode()


def v2(body: bytes) -> tuple[int, str, bytes]:
    """As the Open Inference Protocol has it: one tensor in, one out, numbers flat in rows."""
    (given,) = json.loads(body)["inputs"]
    assert given["datatype"] == "FP32"
    pixels = np.array(given["data"]).reshape(given["shape"])
    means = pixels.mean((2, 3))
    output = {"name": "logits", "datatype": "FP32", "shape": list(means.shape)}
    answer = {"model_name": "means", "outputs": [output | {"data": means.reshape(-1).tolist()}]}
    return 200, "application/json", json.dumps(answer).encode()


def test_endpoints_that_break_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_PAUSE", 0.001)
    hold = threading.Event()

    def busy(body: bytes) -> tuple[int, str, bytes]:
        return 503, "text/plain", b"busy"

    def silent(body: bytes) -> tuple[int, str, bytes]:
        hold.wait(5)
        return busy(body)

    Script.answers = [busy, npy, npy, busy, silent, npy, busy, busy, lambda body: (200, NPY, b"x")]
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Script)) as address:
        model = stockpot.load_model(address, size=SIDE, batch=COUNT, timeout=0.3, retries=2)
        with torch.no_grad():
            assert np.allclose(model(tensors()).numpy(), meant(), atol=1e-6)
        hold.set()
        again = stockpot.models.shipped.endpoint.Npy(endpoint.Server(address, 9, 1.0, 1))
        with pytest.raises(UserError, match=r"status 503 \(2 tries\)"):
            again(tensors().numpy()[:1])
        with pytest.raises(UserError, match="expected logits, got status 200"):
            again(tensors().numpy()[:1])
        Script.answers = [v2] * 3
        model = stockpot.load_model(address, protocol="v2", size=SIDE, batch=COUNT)
        with torch.no_grad():
            assert np.allclose(model(tensors()).numpy(), meant(), atol=1e-6)
    with pytest.raises(UserError, match="Is the server running"):
        stockpot.load_model(address, size=SIDE, retries=0)


NPY = "application/x-npy"
