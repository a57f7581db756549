"""A digest follows everything that decides a model, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.checkpoints.record import Record, read_record
from stockpot.errors import BadParameterError
from stockpot.fuse.record import fusion_record, sweep_records
from stockpot.fuse.run import fuse, sweep
from stockpot.harden.record import hardening_record
from stockpot.harden.run import harden
from stockpot.models.load import identify, load_model
from stockpot.models.new import new_model, new_record
from stockpot.season.record import seasoning_record
from stockpot.season.run import season

DATA = make_dataset()
OTHER = make_dataset(n=44)
SIZES: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "image_size": 16, "patch_size": 8,
}  # fmt: skip


@pytest.fixture
def pool(pico_vit: Path, tmp_path: Path) -> dict[str, Path]:
    """Four models of one family, in folders of their own."""
    found = {}
    for number, name in enumerate(("base", "one", "two", "teacher")):
        found[name] = Path(shutil.copytree(pico_vit, tmp_path / name))
        nudge(found[name], 0.1 * number)
    return found


def nudge(folder: Path, by: float) -> None:
    file = folder / "model.safetensors"
    weights = {name: value + by for name, value in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})


def fused(pool: dict[str, Path], **changed: Any) -> Record:
    members = changed.pop("members", {name: pool[name] for name in ("one", "two")})
    given = {"base": pool["base"], "density": 0.5, "seed": 1, **changed}
    return fusion_record(given.pop("method", "dare"), members, **given)


def hardened(pool: dict[str, Path], **changed: Any) -> Record:
    given: dict[str, Any] = {"teacher": str(pool["teacher"]), "epochs": 1, **changed}
    data = given.pop("data", DATA)
    return hardening_record(given.pop("method", "wise_kd"), given.pop("model", pool["one"]), data,
                            **given)  # fmt: skip


def seasoned(pool: dict[str, Path], **changed: Any) -> Record:
    given: dict[str, Any] = {"shots": 8, "source": DATA, **changed}
    members = given.pop("members", {name: pool[name] for name in ("one", "two")})
    return seasoning_record(given.pop("method", "grid"), members, given.pop("data", DATA), **given)


def new(pool: dict[str, Path], **changed: Any) -> Record:
    given: dict[str, Any] = {"size": 16, **SIZES, **changed}
    return new_record(given.pop("method", "vit"), given.pop("data", DATA), **given)


Ask = Callable[..., Record]
RENAMED = replace(DATA, classes=("ant", "bee", "cat", "eel"))
CHANGES: list[tuple[Ask, dict[str, Any]]] = [
    (fused, {"density": 0.6}),
    (fused, {"seed": 2}),
    (fused, {"method": "della"}),
    (fused, {"dtype": "bf16"}),
    (fused, {"exclude": "*head*"}),
    (fused, {"accumulate": "fp64"}),
    (fused, {"head": "first"}),
    (hardened, {"lr": 0.5}),
    (hardened, {"seed": 3}),
    (hardened, {"gamma": 0.5}),
    (hardened, {"data": OTHER}),
    (hardened, {"data": replace(DATA, templates=("a drawing of a {}.",))}),
    (hardened, {"validation": OTHER}),
    (hardened, {"teacher": ""}),
    (seasoned, {"shots": 9}),
    (seasoned, {"seed": 4}),
    (seasoned, {"step": 0.5}),
    (seasoned, {"protocol": "leaky"}),
    (seasoned, {"data": OTHER}),
    (seasoned, {"source": OTHER}),
    (seasoned, {"source": None}),
    (new, {"hidden_size": 8}),
    (new, {"seed": 5}),
    (new, {"size": 32}),
    (new, {"data": RENAMED}),
]


@pytest.mark.parametrize(("ask", "change"), CHANGES)
def test_another_setting_is_another_question(
    pool: dict[str, Path], ask: Ask, change: dict[str, Any]
) -> None:
    before, after = ask(pool), ask(pool, **change)
    assert before.digest != after.digest
    assert before.differences(after)


@pytest.mark.parametrize(
    ("ask", "part"),
    [
        (fused, "base"), (fused, "one"), (fused, "two"),
        (hardened, "one"), (hardened, "teacher"),
        (seasoned, "one"), (seasoned, "two"),
    ],
)  # fmt: skip
def test_other_content_under_the_same_name_is_another_question(
    pool: dict[str, Path], ask: Ask, part: str
) -> None:
    before = ask(pool)
    nudge(pool[part], 0.01)
    after = ask(pool)
    assert before.digest != after.digest
    assert [words for words in before.differences(after) if "other content" in words]


@pytest.mark.parametrize("ask", [fused, hardened, seasoned])
def test_a_moved_folder_is_the_same_question(
    pool: dict[str, Path], tmp_path: Path, ask: Ask
) -> None:
    before = ask(pool)
    (tmp_path / "elsewhere").mkdir()
    moved = {name: Path(shutil.move(path, tmp_path / "elsewhere")) for name, path in pool.items()}
    assert ask(moved).digest == before.digest
    assert ask(moved).differences(before) == []


def test_where_and_how_fast_is_no_part_of_the_question(pool: dict[str, Path]) -> None:
    plain = fused(pool).digest
    for setting in ({"device": "cuda"}, {"threads": 2}, {"max_shard": "1MB"}, {"hashes": False}):
        assert fused(pool, **setting).digest == plain, setting
    as_list = fusion_record("average", [pool["one"], pool["two"]])
    assert as_list.digest == fusion_record("average", [str(pool["one"]), pool["two"]]).digest


def test_names_of_members_count_and_their_order(pool: dict[str, Path]) -> None:
    named = fused(pool).digest
    assert fused(pool, members={"a": pool["one"], "two": pool["two"]}).digest != named
    swapped = fused(pool, members={"two": pool["two"], "one": pool["one"]})
    assert swapped.digest != named
    assert fused(pool).differences(swapped) == ["the order of the inputs"]


def test_a_file_of_coefficients_counts_by_its_content(
    pool: dict[str, Path], tmp_path: Path
) -> None:
    members = {name: pool[name] for name in ("one", "two")}
    fuse("adamerging", members, base=pool["base"], tasks=DATA, steps=1, save=str(tmp_path / "c"))

    def ask() -> Record:
        return fusion_record(
            "adamerging", members, base=pool["base"], load=str(tmp_path / "c"), steps=1
        )

    before = ask()
    assert "learned" in [one.role for one in before.inputs]
    values = load_file(tmp_path / "c.safetensors")
    save_file({name: value + 1 for name, value in values.items()}, tmp_path / "c.safetensors")
    assert ask().digest != before.digest


def test_what_is_made_carries_what_was_foretold(pool: dict[str, Path], tmp_path: Path) -> None:
    members = {name: pool[name] for name in ("one", "two")}
    made = {
        fusion_record("average", members).digest: fuse("average", members, out=tmp_path / "f"),
        seasoning_record("uniform", members, DATA, shots=8).digest:
            season("uniform", members, DATA, shots=8, out=tmp_path / "s") and tmp_path / "s",
        hardening_record("nominal", pool["one"], DATA, epochs=0).digest:
            harden("nominal", pool["one"], DATA, epochs=0, out=tmp_path / "h") and tmp_path / "h",
        new(pool).digest: new_model("vit", DATA, tmp_path / "n", size=16, **SIZES)
            and tmp_path / "n",
    }  # fmt: skip
    for digest, folder in made.items():
        record = read_record(folder)
        assert record is not None
        assert record.digest == digest
        assert record.versions["torch"]
        text = (folder / "README.md").read_text()
        assert record.method in text
        assert digest in text
        for one in record.inputs:
            assert all(sha in text for sha in one.files.values() or [one.fingerprint])
        load_model(folder)
    old = {"fusion.json", "training.json", "season.json"}
    assert not [path for path in tmp_path.rglob("*.json") if path.name in old]


def test_a_second_run_and_a_point_of_a_sweep_have_the_digest_of_a_fusion_alone(
    pool: dict[str, Path], tmp_path: Path
) -> None:
    members = {name: pool[name] for name in ("one", "two")}
    given: dict[str, Any] = {"base": pool["base"]}
    swept = sweep("task_arithmetic", members, key="scale", values=[0.1, 0.2], out=tmp_path / "s",
                  **given)  # fmt: skip
    told = sweep_records("task_arithmetic", members, key="scale", values=[0.1, 0.2], **given)
    alone = fuse("task_arithmetic", members, out=tmp_path / "a", scale=0.2, **given)
    found = {label: read_record(folder) for label, folder in swept.items()}
    assert {label: record.digest for label, record in found.items() if record} == {
        label: record.digest for label, record in told.items()
    }
    single = read_record(alone)
    assert single is not None
    assert single.digest == told["scale=0.2"].digest != told["scale=0.1"].digest


def test_models_per_member_are_told_apart_and_known_as_one(
    pool: dict[str, Path], tmp_path: Path
) -> None:
    members = {name: pool[name] for name in ("one", "two")}
    out = fuse("emr", members, base=pool["base"], out=tmp_path / "out")
    whole, one, two = (read_record(folder) for folder in (out, out / "one", out / "two"))
    assert whole is not None
    assert one is not None
    assert two is not None
    assert whole.digest == fusion_record("emr", members, base=pool["base"]).digest
    assert len({whole.digest, one.digest, two.digest}) == 3


@pytest.mark.parametrize(
    ("file", "old", "verb"),
    [
        ("fusion.json", {"method": "ties", "params": {"scale": 0.3}, "version": "0.1"}, "fuse"),
        (
            "training.json",
            {
                "method": "nominal",
                "parameters": {"method": "nominal", "epochs": 3, "seed": 7},
                "data": {"name": "icons", "split": "train", "n": 5, "fingerprint": "ab"},
                "provenance": {"torch": "2.6"},
                "seconds": 3,
            },
            "harden",
        ),
        ("season.json", {"method": "grid", "params": {"step": 0.1}, "seed": 7}, "season"),
    ],
)
def test_files_of_earlier_versions_open(
    tmp_path: Path, file: str, old: dict[str, Any], verb: str
) -> None:
    (tmp_path / file).write_text(json.dumps(old))
    record = read_record(tmp_path)
    assert record is not None
    assert (record.verb, record.method) == (verb, old["method"])
    assert "method" not in record.parameters
    assert record.parameters
    assert record.seed == (None if verb == "fuse" else 7)
    if verb == "harden":
        assert record.versions == {"torch": "2.6"}
        assert record.details["seconds"] == 3
    assert not [one for one in record.inputs if one.role in ("member", "model")]


def test_numbers_that_json_cannot_keep_survive(tmp_path: Path) -> None:
    from stockpot.checkpoints.record import plain, write_record

    record = Record(verb="fuse", method="x", parameters=plain({"a": float("inf"), "b": (1, 2)}))
    write_record(tmp_path, record)
    again = read_record(tmp_path)
    assert again is not None
    assert again.digest == record.digest


def test_a_killed_training_goes_on_only_with_its_own_question(
    pool: dict[str, Path], tmp_path: Path
) -> None:
    """The teacher's content is part of it, although its path is the same."""

    def stop(step: int, total: int, seen: dict[str, float]) -> None:
        if step >= total // 2:
            raise KeyboardInterrupt

    given: dict[str, Any] = {"teacher": str(pool["teacher"]), "epochs": 4, "batch_size": 8}
    from stockpot.harden import run
    from stockpot.harden.state import Resume

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "Resume", lambda path: Resume(path, every=1))
        with pytest.raises(KeyboardInterrupt):
            harden("wise_kd", pool["one"], DATA, out=tmp_path / "m", report=stop, **given)
    (state,) = (tmp_path / ".m.partial").glob("*.pt")
    kept = state.read_bytes()
    nudge(pool["teacher"], 0.2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "Resume", lambda path: Resume(path, every=1))
        with pytest.raises(KeyboardInterrupt):
            harden("wise_kd", pool["one"], DATA, out=tmp_path / "m", report=stop, **given)
    assert state.read_bytes() == kept  # another question has a state of its own
    harden("wise_kd", pool["one"], DATA, out=tmp_path / "m", **given)
    harden("wise_kd", pool["one"], DATA, out=tmp_path / "fresh", **given)
    anew, fresh = (load_file(tmp_path / n / "model.safetensors") for n in ("m", "fresh"))
    assert all(torch.equal(anew[name], fresh[name]) for name in fresh)
    assert not (tmp_path / ".m.partial").exists()


def test_the_expert_that_an_oracle_chooses_is_an_input() -> None:
    """Where no model is named, the zoo's expert for the data judges, known as if named."""
    asked = {"generator": "colour", "oracle": "zero_shot"}
    model, data = make_classifier(ReadsLabel(4)), make_dataset()
    found = hardening_record("dynamic_augment", model, data, **asked)
    told = hardening_record(
        "dynamic_augment", model, data, **asked, oracle_params={"model": "clip-base"}
    )
    chosen = [each for each in found.inputs if each.role == "oracle_params.model"]
    assert [each.fingerprint for each in chosen] == [identify("clip-base")]
    assert chosen == [each for each in told.inputs if each.role == "oracle_params.model"]


def test_no_member_beside_a_base_is_called_base() -> None:
    states = {name: {"w": torch.ones(2)} for name in ("base", "other")}
    with pytest.raises(BadParameterError, match="'base' means something else"):
        fuse("task_arithmetic", states, base={"w": torch.zeros(2)})
    assert torch.equal(fuse("average", states)["w"], torch.ones(2))
