"""The registry: signature as schema, suggestions, static listing, third-party entry points."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from stockpot.errors import BadParameterError, UnknownNameError
from stockpot.registries import KINDS, registry
from stockpot.registry import Kind, Registry, Tags


def make() -> Registry:
    things = Kind("things", noun="thing", package="stockpot.engine").tagged(Tags)

    @things.register("mix", paper="arXiv:0000.00000")
    def mix(tensors: list, *, scale: float = 0.3, names: tuple[str, ...] = ()) -> tuple:
        """Mix things.

        Args:
            scale: how much,
                in all.
            names: which ones.
        """
        return tensors, scale, names

    return things


def test_parameters_come_from_the_signature() -> None:
    rows = make().get("mix").parameters
    assert [(row.name, row.default, row.doc) for row in rows] == [
        ("scale", 0.3, "how much, in all."),
        ("names", (), "which ones."),
    ]


def test_text_becomes_the_annotated_type() -> None:
    assert make().get("mix")([1], scale="0.5", names=["a"]) == ([1], 0.5, ("a",))


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"scael": 1}, "Did you mean scale?"),
        ({"scale": "much"}, "got 'much'"),
        ({"scael": 1}, "It takes: scale, names."),
    ],
)
def test_bad_parameters_are_named(params: dict, words: str) -> None:
    with pytest.raises(BadParameterError, match=words.replace("?", r"\?")):
        make().get("mix")([], **params)


def test_unknown_name_is_suggested() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean mix"):
        make().get("mxi")


def test_a_docstring_is_demanded() -> None:
    things = Kind("things", noun="thing", package="stockpot.engine").tagged(Tags)
    with pytest.raises(TypeError, match="docstring"):
        things.register("bare")(lambda: None)


def test_a_misspelt_tag_is_refused_where_it_stands() -> None:
    from stockpot.fuse import fusers

    with pytest.raises(TypeError, match="need_base"):
        fusers.register("wrong", need_base=True)  # type: ignore[call-arg]

    def bare(tensors: list) -> list:
        """Nothing."""
        return tensors

    with pytest.raises(TypeError, match="takes no parameter 'tensor'"):
        make().register("wrong", given=("tensor",))(bare)


def test_tags_are_fields() -> None:
    from stockpot.fuse import fusers

    ties = fusers.get("ties").tags
    assert (ties.needs_base, ties.learns, ties.members) == (True, False, None)
    with pytest.raises(AttributeError):
        ties.need_base  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError):
        ties.needs_base = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("hardeners", "wise_kd", {"teacher": "model"}),
        ("hardeners", "counterfactual", {"teacher": "model"}),
        ("hardeners", "dynamic_augment", {"generator": "generator", "oracle": "oracle"}),
        ("measures", "corruption", {"baseline": "model", "folder": "corrupted"}),
        (
            "measures",
            "dynamic",
            {"generator": "generator", "oracle": "oracle", "twin": "model"},
        ),
        ("measures", "adversarial", {"method": "attack", "images": "images"}),
        ("oracles", "zero_shot", {"model": "model"}),
        ("generators", "vqgan", {"autoencoder": "autoencoder"}),
        ("measures", "clean", {}),
    ],
)
def test_what_a_parameter_names_is_part_of_its_type(
    kind: str, name: str, expected: dict[str, str]
) -> None:
    assert registry(kind).get(name).references == expected


def test_references_among_parameters() -> None:
    entry = registry("measures").get("dynamic")
    params = {"oracle": "zero_shot", "rule": "argmax", "generator": "warp"}
    assert entry.referred(params, "oracle") == {"oracle": "zero_shot"}
    assert entry.referred(params, "model") == {}


@pytest.mark.parametrize("kind", KINDS)
def test_static_listing_equals_what_registers(kind: str) -> None:
    """Every name found in the source registers when its module is imported, and is described."""
    found = registry(kind)
    assert found.names(), kind
    for row in found.listings():
        entry = found.get(row.name)
        assert entry.summary == row.summary
        assert entry.function.__module__ == row.module
        documented = {parameter.name for parameter in entry.parameters if parameter.doc}
        missing = {parameter.name for parameter in entry.parameters} - documented
        assert not missing, f"{row.name}: undocumented {missing}"


@pytest.mark.parametrize(
    ("kind", "name", "files"), [("measures", "clean", {"clean.py"}), ("datasets", "icons", None)]
)
def test_a_name_is_found_without_reading_what_is_called_otherwise(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str, files: set[str] | None
) -> None:
    known = registry(kind)
    fresh = Registry(kind, noun=known.noun, package=known.package, tags=Tags)
    opened = []

    def noted(self: Path, encoding: str, read=Path.read_text) -> str:  # type: ignore[no-untyped-def]
        opened.append(self)
        return read(self, encoding=encoding)

    monkeypatch.setattr(Path, "read_text", noted)
    assert name in fresh
    assert opened
    assert all(name in (path.stem, *path.parent.parts) for path in opened)
    assert files is None or {path.name for path in opened} == files


def test_listing_needs_no_torch() -> None:
    code = (
        "import sys; from stockpot.registries import KINDS, listings; [listings(k) for k in KINDS];"
        "import stockpot, stockpot.cli.main; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_metadata_names_the_command() -> None:
    scripts = importlib.metadata.entry_points(group="console_scripts", name="stockpot")
    assert [script.value for script in scripts] == ["stockpot.cli.main:main"]


def test_choices_are_shown_as_they_may_be_written() -> None:
    from stockpot.harden import hardeners

    shown = {row.name: row.type for row in hardeners.get("counterfactual").parameters}
    assert shown["fill"] == "none | single | multi"  # not the alias that the source has
    assert shown["target"] == "label | predicted"
    assert shown["beta"] == "float >= 0"


FAMILIES = {
    "autoencoders": {"kl", "vqgan"},
    "average": {"uniform_soup"},
    "bar": {
        "blue_noise_sample", "brownish_noise", "caustic_refraction", "checkerboard_cutout",
        "circular_motion_blur", "cocentric_sine_waves", "inverse_sparkles", "lines",
        "perlin_noise", "pinch_and_twirl", "plasma_noise", "ripple", "single_frequency_greyscale",
        "transverse_chromatic_abberation",
    },
    "blur": {"defocus_blur", "gaussian_blur"},
    "few_labels": {"coda"},
    "frank_wolfe": {"fw_hard", "fw_soft"},
    "hub_tasks": {
        "cifar100", "dtd", "emnist_letters", "eurosat", "fer2013", "food101", "gtsrb", "kmnist",
        "oxford_flowers102", "oxford_iiit_pet", "pcam", "rendered_sst2", "resisc45",
        "stanford_cars", "stl10", "sun397", "svhn",
    },
    "imagenet": {"imagenet_sketch", "imagenet_v2", "stylized_imagenet"},
    "imagenet_subsets": {"imagenet_a", "imagenet_r"},
    "laion": {"geometric_shapes", "luminance_checkerboard", "stickers"},
    "networks": {"classifier", "zero_shot"},
    "noise": {"gaussian_noise", "impulse_noise", "shot_noise", "speckle_noise"},
    "pgd": {"fgsm"},
    "soups": {"greedy", "greedy_soup", "learned", "learned_soup", "uniform", "wise_ft"},
    "tone": {"brightness", "contrast", "saturate"},
    "worst_or_mean": {"avg", "max"},
}  # fmt: skip
"""Files and folders that hold several entries, by what they share."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_registered_name_is_found_by_its_file_or_family(kind: str) -> None:
    for row in registry(kind).listings():
        parts = row.module.split(".")
        families = {part for part in parts if row.name in FAMILIES.get(part, ())}
        assert row.name in parts or families, f"{row.name} lies in {row.module}"


def test_no_family_is_listed_for_nothing() -> None:
    rows = [row for kind in KINDS for row in registry(kind).listings()]
    for family, members in FAMILIES.items():
        found = {r.name for r in rows if family in r.module.split(".") and r.name in members}
        assert found == members, family
