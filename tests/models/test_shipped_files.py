"""`stockpot export MODEL`: what is written answers as the model does; loading it runs no code."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import stockpot
from commands import invoke
from stockpot.checkpoints.record import read_record
from stockpot.errors import UserError
from stockpot.measure.export_model import export_model

SIDE, COUNT, CLASSES = 16, 24, ("a", "b", "c", "d")
NETWORK = f"""
import torch
from torch import nn

class Numbered(nn.Module):
    def forward(self, maps):  # makes a tensor of its own, on the device of the export
        return maps + torch.arange(4.0, device=maps.device).view(1, 4, 1, 1)

def make():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), Numbered(), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, {len(CLASSES)}),
    )
"""
OPTIONS = {"size": SIDE, "classes": list(CLASSES), "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4]}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, dict[str, str]]:
    """The model, the folder with both exports of it, and what the command said of each."""
    folder = tmp_path_factory.mktemp("shipped")
    (folder / "tiny.py").write_text(NETWORK, encoding="utf-8")
    chance = np.random.default_rng(0)
    images = chance.integers(0, 256, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
    labels = np.arange(COUNT) % len(CLASSES)
    np.savez(folder / "noise.npz", images=images, labels=labels, classes=np.array(CLASSES))
    source = f"{folder / 'tiny.py'}:make"
    options = [word for key, value in OPTIONS.items() for word in ("-m", f"{key}={value}")]
    said = {}
    for to in ("onnx", "torch-export"):
        one = ("export", source, "--to", to, "--data", folder / "noise.npz", "--split", "all")
        done = invoke(*one, "-o", folder / to, *options)
        assert done.exit_code == 0, done.output
        said[to] = done.output
    return source, folder, said


@pytest.mark.parametrize("to", ["onnx", "torch-export"])
def test_the_difference_is_measured(written: tuple[str, Path, dict[str, str]], to: str) -> None:
    source, folder, said = written
    # Wilson's interval of none of n ends at z^2 / (n + z^2).
    most = 1.959964**2 / (COUNT + 1.959964**2)
    assert f"0 of {COUNT} answers changed (0.00%, 95 % interval 0.00% to {most:.2%})" in said[to]
    model, shipped = stockpot.load_model(source, **OPTIONS), stockpot.load_model(folder / to)
    assert shipped.classes == CLASSES
    pixels = torch.rand(5, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert torch.allclose(shipped(pixels), model(pixels), atol=1e-5)
    record = read_record(folder / to)
    assert record is not None
    assert (record.verb, record.method) == ("export", to)
    assert record.inputs[0].fingerprint == model.origin.fingerprint
    # What is written says nothing of the machine that it was written on.
    (file,) = (folder / to).glob("model.*")
    assert str(folder).encode() not in file.read_bytes()
    assert b"site-packages" not in file.read_bytes()


def test_the_onnx_file_stands_alone(written: tuple[str, Path, dict[str, str]]) -> None:
    """The runtime by itself: pixels in [0, 1], normalised inside, any number at a time."""
    source, folder, _ = written
    session = onnxruntime.InferenceSession(folder / "onnx" / "model.onnx")
    said = json.loads(session.get_modelmeta().custom_metadata_map["stockpot"])
    assert (said["classes"], said["size"], said["mean"]) == (list(CLASSES), [SIDE, SIDE], [0, 0, 0])
    pixels = np.random.default_rng(2).random((3, 3, SIDE, SIDE), dtype=np.float32)
    (found,) = session.run(["logits"], {"pixels": pixels})
    with torch.no_grad():
        meant = stockpot.load_model(source, **OPTIONS)(torch.from_numpy(pixels)).numpy()
    assert np.allclose(found, meant, atol=1e-5)


def test_an_exported_program_is_attacked_by_gradients(
    written: tuple[str, Path, dict[str, str]],
) -> None:
    source, folder, _ = written
    results = [
        stockpot.measure(
            {"it": model},
            {"adversarial": {"norms": "linf", "eps": "2/255", "steps": 5}},
            data=folder / "noise.npz",
            model_options=options,
        )[0]
        for model, options in ((source, OPTIONS), (folder / "torch-export", {}))
    ]
    moved = stockpot.load_model(folder / "torch-export").to("meta")
    assert moved(torch.zeros(2, 3, SIDE, SIDE, device="meta")).device.type == "meta"
    assert [cell.outcomes for cell in results[:1]] == [cell.outcomes for cell in results[1:]]


def test_mistakes_are_told(written: tuple[str, Path, dict[str, str]], tmp_path: Path) -> None:
    _, folder, _ = written
    file = folder / "onnx" / "model.onnx"
    told = invoke("export", file, "--to", "onnx", "-o", tmp_path / "again")
    assert told.exit_code == 1
    assert "can only be asked, so there is nothing to export" in told.output
    told = invoke("export", "icons-resnet", "--to", "onnx", "-o", tmp_path / "model.onnx")
    assert "expected a folder" in told.output
    assert not any(tmp_path.iterdir())
    told = invoke("fuse", "average", file, file, "-o", tmp_path / "soup")
    assert "is an ONNX file, and its files are wanted here" in told.output
    (tmp_path / "no.onnx").write_bytes(b"no")
    assert (
        "onnxruntime cannot open it"
        in invoke("measure", tmp_path / "no.onnx", "--data", "icons", "--limit", 2).output
    )


class Bomb:
    """Pickled, it makes a file when it is read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.file), "w")


Change = Callable[[str, bytes, Path], bytes]


def changed(
    program: Path, out: Path, change: Change, extra: dict[str, bytes] | None = None
) -> Path:
    """The archive with some of its members changed."""
    mark = out.with_suffix(".ran")
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(out, "w") as new:
        top = old.namelist()[0].partition("/")[0]
        for name in old.namelist():
            new.writestr(name, change(name.partition("/")[2], old.read(name), mark))
        for name, body in (extra or {}).items():
            new.writestr(f"{top}/{name}", body)
    return out


def pickled_inputs(name: str, body: bytes, mark: Path) -> bytes:
    if not name.startswith("data/sample_inputs/"):
        return body
    stream = io.BytesIO()
    torch.save((Bomb(mark),), stream)
    return stream.getvalue()


def pickled_weight(name: str, body: bytes, mark: Path) -> bytes:
    if name == "data/weights/weight_0":
        return pickle.dumps(Bomb(mark))
    if name.endswith("weights_config.json"):
        return body.replace(b'"use_pickle": false', b'"use_pickle": true', 1)
    return body


def foreign_call(name: str, body: bytes, mark: Path) -> bytes:
    return body.replace(b"torch.ops.aten.relu.default", b"torch.os.system")


def evaluated_shape(name: str, body: bytes, mark: Path) -> bytes:
    if not name.startswith("models/"):
        return body
    text = json.dumps(f"open({str(mark)!r}, 'w')")[1:-1]
    program = json.loads(body)

    def walk(tree: Any) -> None:
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            if key == "expr_str":
                tree[key] = text
            elif isinstance(value, dict | list):
                walk(value)

    walk(program)
    return json.dumps(program).encode()


def without_words(name: str, body: bytes, mark: Path) -> bytes:
    return b"{}" if name.endswith("stockpot.json") else body


def as_it_is(name: str, body: bytes, mark: Path) -> bytes:
    return body


@pytest.mark.parametrize(
    ("change", "extra", "why"),
    [
        (pickled_inputs, {}, "holds more than tensors"),
        (pickled_weight, {}, "is pickled"),
        (foreign_call, {}, "it calls torch.os.system"),
        (evaluated_shape, {}, "a shape of it is"),
        (as_it_is, {"data/aotinductor/model/a.so": b"\x7fELF"}, r"it holds data/aotinductor"),
        (as_it_is, {"data/weights/model.pt": b""}, "is pickled"),
    ],
)
def test_an_archive_that_could_run_code_is_refused(
    written: tuple[str, Path, dict[str, str]], tmp_path: Path, change: Change, extra: Any, why: str
) -> None:
    program = written[1] / "torch-export" / "model.pt2"
    file = changed(program, tmp_path / "model.pt2", change, extra)
    with pytest.raises(UserError, match=why):
        stockpot.load_model(file)
    assert not file.with_suffix(".ran").exists()


def test_a_rewritten_archive_without_changes_loads(
    written: tuple[str, Path, dict[str, str]], tmp_path: Path
) -> None:
    """So that the refusals above are for what was changed."""
    file = changed(written[1] / "torch-export" / "model.pt2", tmp_path / "model.pt2", as_it_is)
    assert stockpot.load_model(file).classes == CLASSES


@pytest.mark.parametrize("to", ["onnx", "torch-export"])
def test_blue_comes_first_inside_what_is_written(to: str, pico_vit: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(pico_vit, tmp_path / "blue"))
    plain = stockpot.load_model(folder)
    side = {"height": plain.preprocess.size.height, "width": plain.preprocess.size.width}
    said = {"image_processor_type": "MobileViTImageProcessor", "size": side, "crop_size": side}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    assert invoke("export", folder, "--to", to, "-o", tmp_path / to).exit_code == 0
    model, shipped = stockpot.load_model(folder), stockpot.load_model(tmp_path / to)
    assert (model.preprocess.bgr, shipped.preprocess.bgr) == (True, False)
    pixels = torch.rand(2, 3, *plain.preprocess.size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model.network(pixels.flip(1))
        assert torch.equal(model(pixels), expected)
        assert torch.allclose(shipped(pixels), expected, atol=1e-5)
        assert not torch.allclose(shipped(pixels.flip(1)), expected, atol=1e-5)
    (file,) = (tmp_path / to).glob("model.*")
    beside = file.with_name(f"{file.name}.json")
    beside.write_text('{"bgr": true}')  # whoever says so of any file is believed
    with torch.no_grad():
        turned = stockpot.load_model(file)(pixels.flip(1))
        assert torch.allclose(turned, expected, atol=1e-5)
    beside.write_text('{"bgr": "yes"}')
    with pytest.raises(UserError, match="bgr: expected true or false, got 'yes'"):
        stockpot.load_model(file)


@pytest.mark.parametrize("to", ["onnx", "torch-export"])
def test_a_processor_that_cannot_be_read_matters_only_where_it_is_needed(
    to: str, written: tuple[str, Path, dict[str, str]], tmp_path: Path
) -> None:
    (model,) = (each for each in (written[1] / to).glob("model.*") if each.suffix != ".json")
    file = tmp_path / model.name
    if to == "onnx":
        graph = onnx.load(model)
        del graph.metadata_props[:]  # it would say everything
        onnx.save(graph, file)
    else:
        changed(model, file, without_words)
    expected = stockpot.load_model(file, **OPTIONS)
    kind = {"image_processor_type": "Siglip2ImageProcessor"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(kind))
    (tmp_path / "config.json").write_text(json.dumps({"id2label": dict(enumerate("wxyz"))}))
    assert stockpot.load_model(file, **OPTIONS).preprocess == expected.preprocess
    named = stockpot.load_model(file, mean=OPTIONS["mean"], std=OPTIONS["std"], size=SIDE)
    assert named.classes == tuple("wxyz")
    why = rf"{file.name}: .*\(mean\).*preprocessor_config.json: Siglip2ImageProcessor .*-m mean=R"
    with pytest.raises(UserError, match=why):
        stockpot.load_model(file, std=OPTIONS["std"], size=SIDE)
    (tmp_path / "config.json").write_text('{"id2label": ["a"]}')
    with pytest.raises(UserError, match=r"id2label of .*config.json cannot be read"):
        stockpot.load_model(file, mean=OPTIONS["mean"], std=OPTIONS["std"], size=SIDE)
    assert stockpot.load_model(file, **OPTIONS).preprocess == expected.preprocess


def test_a_model_is_recorded_as_it_was_loaded(tmp_path: Path) -> None:
    (tmp_path / "wide.py").write_text(
        "from torch import nn\n\ndef make(width):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, width))\n",
        encoding="utf-8",
    )
    torch.save({"1.weight": torch.rand(4, 192), "1.bias": torch.rand(4)}, tmp_path / "w.pt")
    given = {"arguments": {"width": 4}, "weights": str(tmp_path / "w.pt"), "size": 8}
    source = f"{tmp_path / 'wide.py'}:make"
    export_model(source, "torch-export", tmp_path / "out", options=given)
    record = read_record(tmp_path / "out")
    assert record is not None
    assert record.inputs[0].fingerprint == stockpot.load_model(source, **given).origin.fingerprint
