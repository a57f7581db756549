"""Weights come out of pickles that are never run, under the names that were asked for.

`tests/oracles/data/torch_files` was written by torch 2.13: `lightning.ckpt` by a trainer of
lightning 2.6.6 whose module keeps `argparse.Namespace` among its settings and whose callbacks have
states, `script.pt` by `torch.jit.script` of a module in half precision.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import stockpot
from commands import invoke
from stockpot.checkpoints.convert import convert
from stockpot.checkpoints.open import open_checkpoint, read_tensors
from stockpot.checkpoints.pickles.__main__ import main
from stockpot.errors import BadCheckpointError, BadParameterError

RECORDED = Path(__file__).parents[1] / "oracles" / "data" / "torch_files"
TINY = RECORDED.parent / "tiny_clip"
State = dict[str, Tensor]
CANARY = "canary"
WEIGHTS: State = {
    "a.weight": torch.arange(12.0).view(3, 4),
    "a.turned": torch.arange(12.0).view(3, 4).T,
    "a.part": torch.arange(20, dtype=torch.int64)[3:9:2],
    "half": torch.tensor([1.5, -2.0], dtype=torch.float16),
    "brain": torch.tensor([[1.5]], dtype=torch.bfloat16),
    "eight": torch.tensor([1.5, 448.0]).to(torch.float8_e4m3fn),
    "count": torch.tensor(7),
    "flags": torch.tensor([True, False]),
    "empty": torch.empty(0, 5),
}


class Evil:
    """What runs when it is unpickled in the usual way."""

    def __reduce__(self) -> Any:
        return os.mkdir, (CANARY,)


class EvilLater:
    """Does its mischief through state and item setters."""

    def __reduce__(self) -> Any:
        return exec, ("import os; os.mkdir('canary')",), {"x": Evil()}, iter([Evil()])


def extracted(content: Any, tmp_path: Path, key: str = "", **options: Any) -> tuple[State, Any]:
    """In this process, where a mistake would leave the canary behind."""
    file, out = tmp_path / "x.pt", tmp_path / "x.safetensors"
    torch.save(content, file, **options)
    out.unlink(missing_ok=True)
    said = main([str(file), str(out), *([key] if key else [])])
    return load_file(out) if "error" not in said else {}, said


def same(found: State, wanted: State) -> bool:
    assert set(found) == set(wanted)
    for name, values in wanted.items():
        assert found[name].dtype == values.dtype
        assert found[name].shape == values.shape
    return all(torch.equal(found[n].double(), v.double()) for n, v in wanted.items())


@pytest.fixture(autouse=True)
def no_canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / CANARY).exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_of_every_kind_come_out_as_they_went_in(zipped: bool, tmp_path: Path) -> None:
    # The old format knows no FP8.
    state = {n: v for n, v in WEIGHTS.items() if zipped or n != "eight"}
    shared = {"again": state["a.weight"], "learned": nn.Parameter(torch.ones(2))}
    found, said = extracted(state | shared, tmp_path, _use_new_zipfile_serialization=zipped)
    assert same(found, state | {"again": state["a.weight"], "learned": torch.ones(2)})
    assert said["left_out"] == {}
    assert said["foreign"] == []


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", [2, 4])
def test_nothing_in_a_pickle_is_run(zipped: bool, protocol: int, tmp_path: Path) -> None:
    content = {
        "state_dict": {"w": torch.ones(2), "evil": Evil()},
        "args": argparse.Namespace(evil=Evil()),
        "more": [EvilLater(), {Evil(): 1} if zipped else Evil()],
    }
    found, said = extracted(
        content, tmp_path, _use_new_zipfile_serialization=zipped, pickle_protocol=protocol
    )
    assert same(found, {"w": torch.ones(2)})
    assert {"argparse.Namespace", "posix.mkdir", "builtins.exec"} <= set(said["foreign"])
    assert said["left_out"]["args"] == "argparse.Namespace"
    assert said["left_out"]["state_dict.evil"] == "posix.mkdir"
    # The same file does run when it is read in the usual way.
    with contextlib.suppress(FileExistsError):
        torch.load(tmp_path / "x.pt", weights_only=False)
    (tmp_path / CANARY).rmdir()


def opcodes(*parts: bytes) -> bytes:
    return b"\x80\x04" + b"".join(parts) + b"."


@pytest.mark.parametrize(
    "program",
    [
        # Calls by every opcode that can: REDUCE, INST, OBJ, NEWOBJ, and an attribute by its path.
        opcodes(b"cos\nmkdir\n", b"(X\x06\0\0\0canaryt", b"R"),
        opcodes(b"(X\x06\0\0\0canary", b"ios\nmkdir\n"),
        opcodes(b"(cos\nmkdir\n", b"X\x06\0\0\0canary", b"o"),
        opcodes(b"cos\nmkdir\n", b"(X\x06\0\0\0canaryt", b"\x81"),
        opcodes(b"\x8c\x08builtins\x8c\x0c__import__\x93", b"\x8c\x02os\x85R"),
        # Changes to what it is given: a class, a function, an element type.
        opcodes(b"ccollections\nOrderedDict\n", b"}X\x01\0\0\0xK\x01s", b"b"),
        opcodes(
            b"ctorch._utils\n_rebuild_tensor_v2\n", b"N}X\x09\0\0\0_functioncos\nmkdir\ns\x86b"
        ),
        opcodes(b"ctorch\nFloatStorage\n", b"N}X\x04\0\0\0namecos\nmkdir\ns\x86b"),
    ],
)
def test_hand_made_pickles_do_nothing(program: bytes, tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "evil.pt", "w") as archive:
        archive.writestr("archive/data.pkl", program)
    said = main([str(tmp_path / "evil.pt"), str(tmp_path / "out.safetensors")])
    assert "evil.pt" in said["error"]
    assert not (tmp_path / "out.safetensors").exists()


def test_the_reading_process_imports_neither_torch_nor_what_a_file_names(tmp_path: Path) -> None:
    (tmp_path / "argparse_like.py").write_text("import os; os.mkdir('canary')\nclass A: pass\n")
    raw = b"\x80\x02}X\x01\0\0\0acargparse_like\nA\n)\x81s."
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + raw * 3 + b"].")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "stockpot.checkpoints.pickles",
         str(tmp_path / "plain.pt"), str(tmp_path / "out")],
        capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(stockpot.__file__).parents[1])},
    )  # fmt: skip
    assert "no weights" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "stockpot.checkpoints.pickles.inert" in imported
    assert not {"torch", "argparse_like"} & imported


def test_a_lightning_checkpoint_is_refused_with_the_way_out_and_converted(tmp_path: Path) -> None:
    shutil.copy(RECORDED / "lightning.ckpt", tmp_path / "last.ckpt")
    with pytest.raises(BadCheckpointError, match=r"stockpot convert .*last\.ckpt -o last\.safet"):
        open_checkpoint(tmp_path / "last.ckpt")
    done = invoke("convert", "last.ckpt", "--to", "last.safetensors", "--strip", "model.")
    assert done.exit_code == 0, done.output
    linear = {"weight": torch.arange(6.0).view(3, 2), "bias": torch.tensor([0.5, 1.5, 2.5])}
    assert same(load_file("last.safetensors"), linear)
    for said in ("taken: state_dict", "hyper_parameters (dict)", "argparse.Namespace", "callbacks"):
        assert said in done.output
    again = invoke("convert", "last.ckpt", "--to", "last.safetensors")
    assert (again.exit_code, "exists already" in again.output) == (1, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.ckpt", "last.safetensors"]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
        self.register_buffer("passing", torch.ones(1), persistent=False)
        self.own = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.block(x) + self.own.sum()
        return out


def test_a_module_saved_whole_gives_its_state_dict(tmp_path: Path) -> None:
    net = Net().eval()
    found, said = extracted({"model": net, "epoch": 1}, tmp_path)
    assert same(found, net.state_dict())
    assert said["taken"] == "model"


def test_torchscript_which_is_how_openai_published_clip(tmp_path: Path) -> None:
    said = main([str(RECORDED / "script.pt"), str(tmp_path / "script.safetensors")])
    half = {
        "visual.proj": torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        "visual.ln.weight": torch.ones(2),
        "visual.ln.bias": torch.zeros(2),
        "logit_scale": torch.tensor(4.5),
    }
    wanted = {name: values.half() for name, values in half.items()}
    found = load_file(tmp_path / "script.safetensors")
    assert same(found, wanted | {"input_resolution": torch.tensor(8)})
    assert all(name.startswith("__torch__.") for name in said["foreign"])


def test_another_state_dict_is_named_and_taken_by_its_key(tmp_path: Path) -> None:
    content = {
        "model": {"w": torch.zeros(1)},
        "ema": {"decay": 0.9, "shadow": {"w": torch.ones(1)}},
        "teacher.net": {"w": torch.full((1,), 2.0)},
        "evil": Evil(),
    }
    found, said = extracted(content, tmp_path)
    assert float(found["w"]) == 0.0
    assert said["others"] == {"teacher.net": 1}
    assert float(extracted(content, tmp_path, "ema.shadow")[0]["w"]) == 1.0
    assert float(extracted(content, tmp_path, "teacher.net")[0]["w"]) == 2.0
    assert (
        "there is no 'student', only model, ema"
        in extracted(content, tmp_path, "student")[1]["error"]
    )


@pytest.mark.parametrize(
    "content", [b"", b"garbage", b"PK\x03\x04 not a zip", pickle.dumps({"a": 1})]
)
def test_what_is_no_torch_file_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    error = main(["x.pt", "out.safetensors"])["error"]
    assert "\n" not in error
    assert "not a file of torch.save" in error


def test_a_tensor_that_reaches_beyond_its_values_is_refused(tmp_path: Path) -> None:
    state = {"w": torch.ones(4), "evil": Evil()}
    torch.save(state, tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    raw = (tmp_path / "x.pt").read_bytes()
    broken = raw.replace(b"K\x04\x85", b"K\x05\x85")  # four elements become five
    assert broken != raw
    (tmp_path / "x.pt").write_bytes(broken)
    said = main([str(tmp_path / "x.pt"), str(tmp_path / "out.safetensors")])
    assert "reaches beyond its values" in said["error"]


def test_layouts_are_converted_both_ways(tmp_path: Path) -> None:
    assert invoke("convert", TINY, "-o", "hf", "--layout", "hf", "--dtype", "fp32").exit_code == 0
    config = json.loads(Path("hf/config.json").read_text())
    assert config["vision_config"]["hidden_act"] == "quick_gelu"
    assert config["text_config"]["eos_token_id"] == 11
    done = invoke("convert", "./hf", "-o", "back", "--layout", "open_clip", "--dtype", "fp16")
    assert done.exit_code == 0, done.output
    assert same(read_tensors(tmp_path / "back"), read_tensors(TINY))
    names = {path.name for path in Path("back").iterdir()}
    assert names == {"open_clip_model.safetensors", "open_clip_config.json"}


@pytest.mark.parametrize(
    ("end", "pooling"),
    [
        (11, {}),  # the highest number, where open_clip pools by itself
        (2, {}),  # early configurations say this and mean the highest number
        (1, {"pool_type": "eos", "eos_id": 1}),
    ],
)
def test_texts_are_pooled_where_they_were(
    end: int, pooling: dict[str, Any], tmp_path: Path
) -> None:
    invoke("convert", TINY, "-o", "hf", "--layout", "hf")
    config = json.loads(Path("hf/config.json").read_text())
    config["text_config"]["eos_token_id"] = end
    Path("hf/config.json").write_text(json.dumps(config))
    invoke("convert", "./hf", "-o", "out", "--layout", "open_clip")
    written = json.loads(Path("out/open_clip_config.json").read_text())["model_cfg"]["text_cfg"]
    assert {key: written[key] for key in ("pool_type", "eos_id") if key in written} == pooling
    invoke("convert", "./out", "-o", "again", "--layout", "hf")
    again = json.loads(Path("again/config.json").read_text())["text_config"]
    assert again["eos_token_id"] == (1 if end == 1 else 11)


def test_a_forward_pass_that_transformers_lacks_is_refused(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "x")
    config = json.loads((TINY / "open_clip_config.json").read_text())
    config["model_cfg"]["vision_cfg"]["attentional_pool"] = True
    (tmp_path / "x/open_clip_config.json").write_text(json.dumps(config))
    done = invoke("convert", "x", "-o", "out", "--layout", "hf")
    assert (done.exit_code, "vision_cfg has attentional_pool: True" in done.output) == (1, True)
    with pytest.raises(BadCheckpointError, match=r"stockpot convert .* --layout hf"):
        stockpot.load_model("./x", classes=("a", "b"))


def test_a_bare_state_dict_asks_for_its_activation(tmp_path: Path) -> None:
    torch.save(read_tensors(TINY), tmp_path / "bare.pt")
    done = invoke("convert", "bare.pt", "-o", "hf", "--layout", "hf")
    assert (done.exit_code, "--activation quick_gelu" in done.output) == (1, True)
    assert not (tmp_path / "hf").exists()
    done = invoke("convert", "bare.pt", "-o", "hf", "--layout", "hf", "--activation", "gelu")
    assert '"hidden_act": "gelu"' in (tmp_path / "hf/config.json").read_text()
    assert "no tokenizer is beside the weights" in done.output
    # OpenAI's own files keep numbers among the weights that give them away.
    torch.save(read_tensors(TINY) | {"input_resolution": torch.tensor(8)}, tmp_path / "openai.pt")
    assert invoke("convert", "openai.pt", "-o", "openai", "--layout", "hf").exit_code == 0
    assert '"hidden_act": "quick_gelu"' in (tmp_path / "openai/config.json").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--layout", "timm"), "layout: expected one of hf, open_clip"),
        (("--strip", "net."), "no name begins with 'net.'"),
        (("--key", "model"), "only a torch file has keys"),
    ],
)
def test_mistakes_are_answered_in_words(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = invoke("convert", TINY, "-o", "out", *words)
    assert (done.exit_code, said in done.output) == (1, True)
    assert not list(tmp_path.iterdir())


def test_what_a_dtype_cannot_hold_is_refused(tmp_path: Path) -> None:
    values = {"fits": torch.tensor([6e4]), "w": torch.tensor([1.0, -1e6])}
    save_file(values, tmp_path / "a.safetensors")
    with pytest.raises(BadParameterError, match=r"'w' has values that torch\.float16 cannot hold"):
        convert(tmp_path / "a.safetensors", tmp_path / "b.safetensors", dtype="fp16")
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
    convert(tmp_path / "a.safetensors", tmp_path / "c.safetensors", dtype="bf16")


@pytest.mark.parametrize("name", ["x.bin", "x.pt", "x.ckpt"])
def test_no_folder_is_made_under_the_name_of_a_torch_file(name: str, tmp_path: Path) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "a.safetensors")
    with pytest.raises(BadParameterError, match=r"expected NAME\.safetensors or a folder"):
        convert(tmp_path / "a.safetensors", tmp_path / name)
    assert not (tmp_path / name).exists()
