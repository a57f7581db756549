"""Options, recipes, parameters, checkpoints and results that cannot be, in one line each."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from kindly import unkind
from safetensors.torch import load_file, save_file
from spoilt import deep_json, safetensors, spoilt
from typer.testing import CliRunner

import commands  # noqa: F401 (keeps the commands, which the runner would build for every call)
from pico import CLASSES
from stockpot.cli.main import app
from stockpot.errors import LONGEST, UserError
from stockpot.recipe import load_recipe
from stockpot.registries import KINDS, registry
from stockpot.results.store import read_result

RECIPE = """version: 1
seed: 0
data: {test: {dataset: toy.npz, split: all}}
models: {a: {load: m}}
harden: {h: {method: nominal, model: a, data: test, epochs: 1}}
fuse: {soup: {method: ties, models: [a, h], base: a, density: 0.5}}
season: {s: {method: grid, models: [a, h], data: test, shots: 4}}
similarity: {base: a, models: [h, soup]}
measure: {models: [a, soup], with: [{measure: clean, data: test}]}
report: {title: A soup}
"""
NOT_YAML = {
    "an open brace": "seed={",
    "no date": "seed=2024-99-99",
    "no alias": "seed=*x",
    "itself": "seed=&a [*a]",
    "deep": "seed=" + "[" * 20_000,
    "a tag": "seed=!!python/object/apply:os.system [ls]",
    "a bell": "seed=\a",
    "digits": "seed=" + "9" * 10_000,
    "laughs": "seed=[&a [x,x,x,x,x,x,x,x,x,x], &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a], &c "
    "[*b,*b,*b,*b,*b,*b,*b,*b,*b,*b], &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c], &e "
    "[*d,*d,*d,*d,*d,*d,*d,*d,*d,*d], [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]]",
}
KEYS = (
    "version", "seed", "device", "batch_size", "precision", "compile", "data", "models", "harden",
    "fuse", "season", "similarity", "measure", "report", "data.test", "data.test.dataset",
    "data.test.limit", "models.a", "models.a.load", "models.a.size", "models.a.seed",
    "harden.h", "harden.h.method", "harden.h.model", "fuse.soup", "fuse.soup.models",
    "fuse.soup.base", "season.s.shots", "season.s.bn", "similarity.base", "similarity.models",
    "measure.with", "measure.models", "report.title", "report.scatter",
)  # fmt: skip
"""Every key of a recipe; none of them takes a mapping of numbers."""


def invoked(*words: object) -> None:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exit_code == 2:  # the parser's own words about an option
        assert "Traceback" not in result.output
        raise UserError(" ".join(result.output.split("Error:")[-1].split())[:300])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception


@pytest.fixture(scope="module")
def place(pico_vit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    shutil.copytree(pico_vit, folder / "m")
    images = np.zeros((8, 16, 16, 3), np.uint8)
    classes = np.array(CLASSES)
    np.savez(folder / "toy.npz", images=images, labels=np.arange(8) % 4, classes=classes)
    (folder / "r.yaml").write_text(RECIPE)
    torch.save(load_file(folder / "m" / "model.safetensors"), folder / "w.pt")
    return folder


def _check(cases: Iterator[tuple[str, Callable[[], object]]], folder: Path) -> int:
    count, found = 0, []
    for name, action in cases:
        count += 1
        if problem := unkind(action, folder):
            found.append(f"{name}: {problem}")
    assert not found, "\n".join(found)
    return count


def test_overrides_and_texts_that_are_no_values(place: Path) -> None:
    def cases() -> Iterator[tuple[str, Callable[[], object]]]:
        recipe = place / "r.yaml"
        for name, text in NOT_YAML.items():
            yield f"--set {name}", lambda text=text: load_recipe(recipe, [text])
            words = (
                "fuse",
                "ties",
                place / "m",
                place / "m",
                "-p",
                text.replace("seed", "density"),
            )
            yield f"-p {name}", lambda words=words: invoked(*words, "-o", place / "out")
        for text in ("", "=", "=1", "seed", "seed.x=1", "measure.with.9=1", "measure.with.x=1",
                     ".=1", "..=1", "data..=1", "data.test.nosuch.deeper=1"):  # fmt: skip
            yield f"--set {text!r}", lambda text=text: load_recipe(recipe, [text, "version=7"])
        for key in KEYS:
            for value in ({"zebra": 1}, 2**70):
                yield (
                    f"{key}={value}",
                    lambda key=key, value=value: load_recipe(recipe, {key: value, "zebra": 1}),
                )
        for key in ("seed", "batch_size", "data.test.limit", "models.a.size", "season.s.shots"):
            for value in (-1, 0.5, "x", [1], None if key != "data.test.limit" else -1, 2**70):
                yield f"{key}={value}", lambda k=key, v=value: load_recipe(recipe, {k: v})

    assert _check(cases(), place) > 120


def test_recipes_that_are_none(place: Path) -> None:
    def cases() -> Iterator[tuple[str, Callable[[], object]]]:
        for name, content in (
            *spoilt(RECIPE.encode()),
            ("a key twice", RECIPE.encode() + b"seed: 1\n"),
            ("a list", b"[1, 2]"),
            ("two documents", b"a: 1\n---\nb: 2\n"),
            ("deep", b"a:\n" + b"".join(b" " * n + b"a:\n" for n in range(1, 900))),
            ("long", b"# " + b"x" * 600_000),
            ("an odd letter", b"seed: \x07"),
            ("UTF-16", RECIPE.encode("utf-16")),
        ):
            if name == "no end":
                continue  # a title that is shorter
            file = place / "spoilt.yaml"

            def action(content: bytes = content, file: Path = file) -> None:
                try:
                    file.write_bytes(content)
                    load_recipe(file)
                finally:
                    file.unlink()

            yield name, action
        for name in ("nosuch.yaml", "m", "a\0b.yaml", "x" * 5000, os.fsdecode(b"\xff.yaml")):
            yield repr(name[:20]), lambda name=name: load_recipe(place / name)

    _check(cases(), place)


def test_parameters_of_every_method() -> None:
    """NaN, infinity, numbers beyond 64 bits, texts and mappings where a number belongs."""
    count, found = 0, []
    bad = {"nan": math.nan, "infinite": math.inf, "huge": 2**70, "text": "zebra", "map": {"a": 1}}
    for kind in KINDS:
        methods = registry(kind)
        for name in methods.names():
            entry = methods.get(name)
            for row in entry.parameters:
                if row.type.split()[0] not in ("int", "float") or "str" in row.type:
                    continue
                for what, value in bad.items():
                    if what == "huge" and row.type.startswith("float"):
                        value = 1e300
                    count += 1
                    try:
                        entry.validate({row.name: value})
                    except UserError as problem:
                        said = str(problem)
                        if len(said) > LONGEST or not said.isprintable() or row.name not in said:
                            found.append(f"{kind} {name} {row.name} {what}: {said}")
                    except Exception as problem:
                        found.append(f"{kind} {name} {row.name} {what}: {problem!r}")
                    else:
                        found.append(f"{kind} {name} {row.name} {what}: it was taken")
    assert not found, "\n".join(found)
    assert count > 1000


def test_words_of_commands(place: Path) -> None:
    model, data = place / "m", ("--data", place / "toy.npz", "-d", "split=all")
    out = ("-o", place / "out")
    train = ("harden", "nominal", model, *data, *out)
    asked = ("measure", model, *data, "--with", "clean", *out)

    def cases() -> Iterator[tuple[str, Callable[[], object]]]:
        words: list[tuple[object, ...]] = [
            (*train, "-p", f"{key}={value}")
            for key in (
                "epochs",
                "lr",
                "momentum",
                "clip",
                "weight_decay",
                "batch_size",
                "warmup",
                "ema",
                "seed",
                "patience",
            )
            for value in (".nan", ".inf", "-2", str(10**60), "zebra", "{a: 1}")
        ]
        words += [(*asked, "--seed", value) for value in ("x", "1.5")]
        words += [(*asked, "--batch-size", value) for value in ("0", "-1", "x", "9" * 5000)]
        words += [(*asked, "--limit", value) for value in ("0", "-1", "x")]
        words += [(*asked, "--device", value) for value in ("", "gpu", "meta", "\x1b[31m")]
        words += [(*asked, "--precision", value) for value in ("", "fp64", "\n")]
        words += [(*asked, "--engine", value) for value in ("", "nosuch")]
        words += [("measure", model, *data, "--with", value, *out) for value in ("", "x", "../x")]
        words += [(*asked, "-d", value) for value in ("", "=", "x", "split", "nosuch=1", "limit=x")]
        words += [(*asked, "-m", value) for value in ("", "=", "nosuch")]
        for name in ("", "nosuch", "a\0b", "x" * 5000, "x/" * 3000, "\x1b[2J", os.fsdecode(b"\xff"),
                     "../nosuch", "nosuch.py:f", "timm:nosuch", "owner/nosuch"):  # fmt: skip
            words.append(("measure", name, *data, *out))
            words.append(("measure", model, "--data", name or "\0", *out))
            words.append(("fuse", "average", model, name, *out))
            words.append(("similarity", model, model, name, "--plot", place / "plot.svg"))
            words.append(("report", place / "nosuch" / name[:99].replace("\0", ""), *out))
            words.append(("show", name or "\0"))
        words += [("fuse", name, model, model, *out) for name in ("", "nosuch", "x" * 5000)]
        words += [("compare", place, place), ("verify", place), ("rescore", place / "m")]
        words += [("validate", place / "toy.npz"), ("run", place / "toy.npz"), ("convert", place)]
        words += [("check", place / "r.yaml", place), ("check", place / "toy.npz", place)]
        words += [("list", "nosuch"), ("data", "get", "nosuch"), ("explain", "nosuch", *data)]
        for each in words:
            yield f"{each[0]} {repr(each[-4:])[-200:]}", lambda each=each: invoked(*each)

    assert _check(cases(), place) > 120


def test_weights_that_are_none(place: Path) -> None:
    """Checkpoints whose files are cut, hostile or of another kind."""
    good = {path.name: path.read_bytes() for path in (place / "m").iterdir()}
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    hostile = {
        "model.safetensors": {
            "a header beyond the file": safetensors({}, length=2**62),
            "a deep header": safetensors(deep_json()),
            "a list": safetensors([]),
            "offsets that turn": safetensors({"a": {**entry, "data_offsets": [8, 0]}}, b"x" * 8),
            "negative": safetensors({"a": {**entry, "shape": [-2]}}, b"x" * 8),
            "overflow": safetensors({"a": {**entry, "shape": [2**62, 2**62]}}, b"x" * 8),
            "text for numbers": safetensors({"a": {**entry, "shape": ["x"]}}, b"x" * 8),
            "lacking": safetensors({"a": {"dtype": "F32"}}, b"x" * 8),
            "no tensors": safetensors({}),
        },
        "config.json": {
            "null": b"null", "a list": b"[]", "a number": b"7", "deep": deep_json(),
            "nothing of use": b"{}", "an unknown kind": b'{"model_type": "nosuch"}',
            "hub code": json.dumps({**json.loads(good["config.json"]), "model_type": "x",
                                    "auto_map": {"AutoConfig": "evil.Evil"}}).encode(),
        },
        "preprocessor_config.json": {
            "null": b"null", "a list": b"[]", "deep": deep_json(),
            "text": b'{"size": "x"}', "huge": b'{"size": 9999999999}',
            "nothing": b'{"size": 0}', "negative": b'{"size": -3}', "resample": b'{"resample": 77}',
            "mean": b'{"image_mean": [1, 2]}', "no spread": b'{"image_std": [0, 0, 0]}',
            "NaN": b'{"image_mean": [NaN, 0, 0]}',
        },
    }  # fmt: skip

    def cases() -> Iterator[tuple[str, Callable[[], object]]]:
        for name in good:
            cut = list(spoilt(good[name]))
            # Of JSON files a few: a reader of text fails on all in the same way.
            changed = [*(cut if name == "model.safetensors" else cut[:4]), *hostile[name].items()]
            for how, content in changed:
                if name == "model.safetensors" and how == "end overwritten":
                    continue

                def action(name: str = name, content: bytes = content) -> None:
                    from stockpot import load_model

                    folder = place / "spoilt"
                    try:
                        shutil.copytree(place / "m", folder)
                        (folder / name).write_bytes(content)
                        load_model(str(folder))
                    finally:
                        shutil.rmtree(folder, ignore_errors=True)

                yield f"{name} {how}", action
        for how, content in spoilt((place / "w.pt").read_bytes()):
            if how == "end overwritten":
                continue

            def fuse(content: bytes = content) -> None:
                file = place / "s.pt"
                try:
                    file.write_bytes(content)
                    invoked("fuse", "average", file, place / "w.pt", "-o", place / "out")
                finally:
                    file.unlink()

            yield f"w.pt {how}", fuse

    _check(cases(), place)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_measured_and_said(place: Path, value: float) -> None:
    folder = place.with_name(f"{place.name}-{value}")
    shutil.copytree(place / "m", folder)
    state = load_file(folder / "model.safetensors")
    state["classifier.weight"][0] = value
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    words = ("measure", folder, "--data", place / "toy.npz", "-d", "split=all", "--with", "clean")
    done = CliRunner().invoke(app, [str(word) for word in (*words, "-o", folder / "run")])
    assert done.exit_code == 0
    assert "count as wrong" in done.output
    fused = CliRunner().invoke(
        app, ["fuse", "average", str(folder), str(place / "m"), "-o", str(folder / "out")]
    )
    assert isinstance(fused.exception, UserError)
    assert not (folder / "out").exists()


def test_result_files_that_are_none(place: Path, tmp_path: Path) -> None:
    words = ("measure", place / "m", "--data", place / "toy.npz", "-d", "split=all", "--with")
    invoked(*words, "clean", "-o", tmp_path / "run")
    (file,) = (tmp_path / "run" / "results").iterdir()
    good = file.read_bytes()
    document = json.loads(good)

    def cases() -> Iterator[tuple[str, Callable[[], object]]]:
        changed = [
            *spoilt(good), ("deep", deep_json()), ("a list", b"[]"), ("null", b"null"),
            ("a newer one", json.dumps({**document, "schema_version": 10**6}).encode()),
        ]  # fmt: skip
        for key in document:
            changed.append((f"{key}: odd", json.dumps({**document, key: {"a": [1]}}).encode()))
            if not isinstance(document[key], str):
                huge = {**document, key: "9" * 9000}
                changed.append((f"{key}: huge", json.dumps(huge).encode()))
        for how, content in changed:

            def action(content: bytes = content) -> None:
                copy = tmp_path / "spoilt.json"
                try:
                    copy.write_bytes(content)
                    read_result(copy)
                finally:
                    copy.unlink()

            yield how, action
        for name in document["outcomes"]:
            for text in ("", "!!!", "A"):
                cell = read_result(file).model_copy(update={"outcomes": {name: text}})
                yield f"outcomes {text!r}", lambda cell=cell, name=name: cell.outcome(name)

    _check(cases(), tmp_path)
