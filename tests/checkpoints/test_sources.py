"""Every kind of source gives the same tensors, and says what is broken before it is read."""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from stockpot.checkpoints import mapped_file, on_gpu
from stockpot.checkpoints.locate import locate
from stockpot.checkpoints.on_gpu import tensors_on
from stockpot.checkpoints.open import copied_tensors, open_checkpoint
from stockpot.checkpoints.safetensors_file import SafetensorsSource
from stockpot.checkpoints.source import TensorInfo
from stockpot.errors import BadCheckpointError

STATE = {
    "a.weight": torch.arange(12, dtype=torch.float32).view(3, 4),
    "b": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "count": torch.tensor(7),
    "flags": torch.tensor([True, False]),
    "empty": torch.empty(0, 5),
    "half": torch.ones(5, dtype=torch.float16),
}


def folder(path: Path) -> Path:
    path.mkdir()
    save_file(STATE, path / "model.safetensors")
    (path / "config.json").write_text("{}")
    return path


def sharded(path: Path) -> Path:
    path.mkdir()
    names = list(STATE)
    shards = {"model-1.safetensors": names[:3], "model-2.safetensors": names[3:]}
    for file, part in shards.items():
        save_file({name: STATE[name] for name in part}, path / file)
    weight_map = {name: file for file, part in shards.items() for name in part}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return path


def single(path: Path) -> Path:
    file = path.with_suffix(".safetensors")
    save_file(STATE, file)
    return file


def torch_file(path: Path) -> Path:
    file = path.with_suffix(".pt")
    torch.save({"epoch": 3, "state_dict": STATE}, file)
    return file


def old_torch_file(path: Path) -> Path:
    file = path.with_suffix(".bin")
    torch.save(STATE, file, _use_new_zipfile_serialization=False)
    return file


@pytest.mark.parametrize("make", [folder, sharded, single, torch_file, old_torch_file])
def test_all_formats_read_alike(make, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source = open_checkpoint(make(tmp_path / "m"))
    infos = source.tensors()
    assert set(infos) == set(STATE)
    for name, want in STATE.items():
        assert infos[name] == TensorInfo(tuple(want.shape), want.dtype)
        count = want.numel()
        source.prefetch(name, 0, count)
        assert torch.equal(source.read(name), want)
        for start, stop in ((0, count), (count // 3, count - count // 4), (count, count)):
            assert torch.equal(source.stretch(name, start, stop), want.reshape(-1)[start:stop])
    assert source.files


def test_stretches_lie_in_whatever_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a window, across it and longer than it; read, and read ahead."""
    page = mmap.ALLOCATIONGRANULARITY
    monkeypatch.setattr(mapped_file, "WINDOW", 2 * page)
    monkeypatch.setattr(mapped_file, "REACH", page)
    want = torch.arange(10 * page, dtype=torch.int32)
    save_file({"w": want}, tmp_path / "w.safetensors")
    source = open_checkpoint(tmp_path / "w.safetensors")
    for start in range(0, len(want), page // 3):
        for length in (1, page // 4, 3 * page // 4, 2 * page):
            stop = min(start + length, len(want))
            source.prefetch("w", start, stop)
            assert torch.equal(source.stretch("w", start, stop), want[start:stop])


@pytest.mark.parametrize("make", [single, sharded])
@pytest.mark.parametrize("most", [3, 1 << 20], ids=["in pieces", "at once"])
def test_copies_are_what_is_in_the_files_however_little_a_call_reads(
    make, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    calls = []

    def some(descriptor: int, rooms: list[memoryview], begin: int, read=os.preadv) -> int:  # type: ignore[no-untyped-def]
        calls.append(begin)
        return read(descriptor, rooms if most > 99 else [rooms[0][:most]], begin)

    source = open_checkpoint(make(tmp_path / "a"))
    monkeypatch.setattr(os, "preadv", some)
    found = copied_tensors(source, source.tensors())
    assert found.keys() == STATE.keys()
    assert all(torch.equal(found[name], STATE[name]) for name in STATE)
    assert all(found[name].dtype == STATE[name].dtype for name in STATE)
    if most > 99:
        assert len(calls) == len(source.files)


@pytest.mark.parametrize("make", [single, sharded])
@pytest.mark.parametrize("piece", [7, 1 << 20], ids=["in pieces", "at once"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_tensors_that_go_to_a_device_as_they_are_read_are_what_is_in_the_files(
    make, piece: int, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("stockpot.checkpoints.on_gpu.PIECE", piece)
    source = open_checkpoint(make(tmp_path / "a"))
    assert isinstance(source, SafetensorsSource)
    found = tensors_on(source, torch.device(device))
    assert found.keys() == STATE.keys()
    assert all(torch.equal(found[name].cpu(), STATE[name]) for name in STATE)
    assert all(found[name].dtype == STATE[name].dtype for name in STATE)
    assert {values.device.type for values in found.values()} == {device}
    real = [values for values in found.values() if values.is_floating_point() and len(values)]
    assert all(values.data_ptr() % on_gpu.LINE == 0 for values in real)  # fit for every kernel


def test_headers_alone_are_read(tmp_path: Path) -> None:
    path = single(tmp_path / "m")
    source = open_checkpoint(path)
    values = source.read("a.weight")
    # A private mapping: what a careless caller writes does not reach the file.
    values += 1
    assert torch.equal(open_checkpoint(path).read("a.weight"), STATE["a.weight"])


def test_a_state_dict_knows_its_tied_weights() -> None:
    shared = torch.zeros(3)
    source = open_checkpoint({"x": shared, "y": shared, "z": torch.zeros(3), "part": shared[:2]})
    assert source.tied == {"y": "x"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[:-4], "cut short or corrupt"),
        (lambda raw: raw[:5], "not a safetensors file"),
        (lambda raw: raw + b"\0\0\0\0", "the header promises"),
        (lambda raw: raw[:8] + b"#" + raw[9:], "not valid JSON"),
        (lambda raw: raw.replace(b'"F16"', b'"F99"'), "broken header entry"),
        (lambda raw: raw.replace(b"[3,4]", b"[3,5]"), "holds 48 bytes"),
    ],
)
def test_a_corrupt_file_is_refused_when_opened(damage, message: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = single(tmp_path / "m")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadCheckpointError, match=message) as caught:
        open_checkpoint(path)
    assert str(path) in str(caught.value)


def test_one_corrupt_shard_is_named(tmp_path: Path) -> None:
    path = sharded(tmp_path / "m")
    shard = path / "model-2.safetensors"
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(BadCheckpointError, match=r"model-2\.safetensors"):
        open_checkpoint(path)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    path = sharded(tmp_path / "m")
    (path / "model-1.safetensors").unlink()
    with pytest.raises(BadCheckpointError, match=r"model-1\.safetensors is missing"):
        open_checkpoint(path)


class Evil:
    def __reduce__(self):  # type: ignore[no-untyped-def]
        return os.mkdir, ("owned",)


def test_code_in_a_torch_file_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"x": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(BadCheckpointError, match="not only tensors"):
        open_checkpoint(tmp_path / "evil.pt")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 not a zip"])
def test_a_broken_torch_file_is_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    with pytest.raises(BadCheckpointError) as caught:
        open_checkpoint(path)
    assert "\n" not in str(caught.value)


def test_what_is_not_a_state_dict_is_described(tmp_path: Path) -> None:
    torch.save([torch.zeros(2)], tmp_path / "list.pt")
    with pytest.raises(BadCheckpointError, match="found a list"):
        open_checkpoint(tmp_path / "list.pt")
    torch.save({"epoch": 3}, tmp_path / "other.pt")
    with pytest.raises(BadCheckpointError, match="found the keys 'epoch'"):
        open_checkpoint(tmp_path / "other.pt")


@pytest.mark.parametrize("spec", ["nowhere", "./also/not/here", "x.safetensors"])
def test_a_missing_path_says_what_could_be_given(spec: str) -> None:
    with pytest.raises(BadCheckpointError, match="model folder"):
        locate(spec)


def test_a_folder_without_weights_lists_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(BadCheckpointError, match=r"found notes\.txt"):
        locate(tmp_path)


def test_a_hub_id_that_cannot_be_fetched_is_one_line() -> None:
    with pytest.raises(
        BadCheckpointError, match=r"not on this machine, .* the hub could not give"
    ) as caught:
        locate("nobody/nothing-here")
    assert "\n" not in str(caught.value)


def adapter(path: Path, *, alpha: float = 8.0, **config: object) -> tuple[Path, Tensor, Tensor]:
    path.mkdir()
    generator = torch.Generator().manual_seed(0)
    down, up = torch.randn(2, 4, generator=generator), torch.randn(3, 2, generator=generator)
    prefix = "base_model.model.layer.q"
    save_file(
        {f"{prefix}.lora_A.weight": down, f"{prefix}.lora_B.weight": up},
        path / "adapter_model.safetensors",
    )
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": alpha, **config}
    (path / "adapter_config.json").write_text(json.dumps(settings))
    return path, down, up


def test_a_lora_adapter_reads_as_the_adapted_model(tmp_path: Path) -> None:
    base = {"layer.q.weight": torch.randn(3, 4), "layer.q.bias": torch.randn(3)}
    path, down, up = adapter(tmp_path / "lora")
    source = open_checkpoint(path, base=open_checkpoint(base))
    assert list(source.tensors()) == list(base)
    want = base["layer.q.weight"] + 4.0 * up @ down
    torch.testing.assert_close(source.read("layer.q.weight"), want)
    assert torch.equal(source.read("layer.q.bias"), base["layer.q.bias"])


def test_an_adapter_finds_its_own_base_and_prefix(tmp_path: Path) -> None:
    save_file({"vision_model.layer.q.weight": torch.zeros(3, 4)}, tmp_path / "b.safetensors")
    path, down, up = adapter(
        tmp_path / "lora", base_model_name_or_path=str(tmp_path / "b.safetensors"), use_rslora=True
    )
    got = open_checkpoint(path).read("vision_model.layer.q.weight")
    torch.testing.assert_close(got, (8.0 / 2**0.5) * up @ down)


def test_an_adapter_that_cannot_be_applied_says_why(tmp_path: Path) -> None:
    base = open_checkpoint({"other.weight": torch.zeros(2, 2)})
    path, *_ = adapter(tmp_path / "a")
    with pytest.raises(BadCheckpointError, match="no place in"):
        open_checkpoint(path, base=base)
    path, *_ = adapter(tmp_path / "b", layer_replication=[[0, 1]])
    with pytest.raises(BadCheckpointError, match="not layer_replication"):
        open_checkpoint(path, base=base)
    path, *_ = adapter(tmp_path / "c")
    with pytest.raises(BadCheckpointError, match="does not name its base"):
        open_checkpoint(path)
