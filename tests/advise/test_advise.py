"""Advice on pools of which it is known what they are: by construction, or by how they were made."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import torch
import typer
from safetensors.torch import load_file, save_file
from torch import Tensor

import stockpot
from commands import invoke
from run_recipes import ARCHITECTURE
from stockpot.advise.advice import Advice
from stockpot.advise.evidence import EVIDENCE
from stockpot.advise.facts import Facts, Fits, Member
from stockpot.advise.rules.belonging import strangers
from stockpot.advise.rules.words import Words
from stockpot.checkpoints.state_dict import StateDictSource
from stockpot.cli.main import app
from stockpot.errors import BadParameterError, UserError
from stockpot.fuse.stream import STRETCH
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize
from tiny_clip import weights

ROOT = Path(__file__).parents[2]
PEFT = ROOT / "tests" / "oracles" / "data" / "peft"
CLIP = ["clip-cifar10", "clip-mnist", "clip-fashion", "clip-quickdraw", "clip-icons"]
State = dict[str, Tensor]


def told(advice: Advice, kind: str) -> str:
    return " | ".join(f"{item.what}: {item.why}" for item in advice.items if item.kind == kind)


def methods(advice: Advice) -> set[str]:
    return {
        command.split()[2]
        for item in advice.items
        if item.kind == "works"
        for command in item.commands
        if command.startswith("stockpot fuse")
    }


@pytest.fixture(scope="module")
def vits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Small ViTs: two starts, a tuning of the first, and one of it with other classes."""
    folder, side = tmp_path_factory.mktemp("vits"), ImageSize(16, 16)
    found: dict[str, str] = {}
    start: State = {}
    for name, seed, classes in (
        ("start", 0, ("cat", "dog")), ("other", 1, ("cat", "dog")), ("third", 2, ("cat", "dog")),
        ("tuned", 0, ("cat", "dog")), ("renamed", 0, ("cup", "jug")),
        ("wider", 0, ("cat", "dog", "hen")),
    ):  # fmt: skip
        model = new_huggingface(
            "vit", classes=classes, preprocess=Preprocess(side, side), seed=seed, **ARCHITECTURE
        )
        if name == "wider":  # another head draws other numbers for all that is below it
            own = model.state_dict()
            same = {key: value for key, value in start.items() if own[key].shape == value.shape}
            model.load_state_dict(same, strict=False)
        with torch.no_grad():
            generator = torch.Generator().manual_seed(len(name))
            for values in model.parameters() if seed == 0 and name != "start" else ():
                values += 1e-3 * torch.randn(values.shape, generator=generator)
        if name == "start":
            start = model.state_dict()
        found[name] = str(model.save(folder / name))
    return found


def known_pool() -> tuple[State, dict[str, State]]:
    """Changes of known length, cosine and rank: x along one direction, y half way to another."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.linalg.qr(torch.randn(64, 64, generator=generator, dtype=torch.float64))[0]
    one, two = (torch.outer(vectors[:, k], vectors[:, k + 2]) for k in (0, 1))
    base = torch.randn(64, 64, generator=generator, dtype=torch.float64)
    base *= 100 / base.norm()
    changes = {"x": 5 * one, "y": 2 * (0.6 * one + 0.8 * two), "z": -one}
    states = {name: {"layer.weight": (base + c).float()} for name, c in changes.items()}
    return {"layer.weight": base.float()}, states


def test_lengths_cosines_and_ranks_are_those_of_the_construction() -> None:
    base, members = known_pool()
    facts = stockpot.advise(base, members).facts
    assert [m.length for m in facts.members] == pytest.approx([0.05, 0.02, 0.01], rel=1e-4)
    assert facts.cosines["x"]["y"] == pytest.approx(0.6, abs=1e-4)
    assert facts.cosines["x"]["z"] == pytest.approx(-1, abs=1e-4)
    assert facts.mean_cosine == pytest.approx((0.6 - 1 - 0.6) / 3, abs=1e-4)
    assert facts.layers == pytest.approx({"layer.weight": facts.mean_cosine})
    assert [m.spectrum.rank for m in facts.members if m.spectrum] == [1, 2, 1]
    assert all(m.kin > 0.99 for m in facts.members)
    assert (facts.weights, facts.tensors, facts.matrices) == (4096, 1, 1.0)


class Watched(StateDictSource):
    """Weights that notice how much of them is asked for at once."""

    most = 0

    def read(self, name: str) -> Tensor:
        raise AssertionError(f"{name} was read whole")

    def stretch(self, name: str, start: int, stop: int) -> Tensor:
        Watched.most = max(Watched.most, stop - start)
        return self.state[name].reshape(-1)[start:stop]


def test_no_member_is_held_whole() -> None:
    """A convolution of a million weights in twenty members, never more than a stretch of one."""
    start = torch.randn(64, 64, 16, 16)
    pool = {f"m{k}": Watched({"conv.weight": start + k}, label=f"m{k}") for k in range(1, 21)}
    facts = stockpot.advise(Watched({"conv.weight": start}, label="base"), pool).facts
    assert len(facts.members) == 20
    assert 0 < Watched.most <= STRETCH < start.numel()


def test_the_clip_pool() -> None:
    advice = stockpot.advise("clip-base", CLIP)
    assert advice.facts.mean_cosine < 0.05
    assert {"average", "iso_cts", "regmean", "smile", "tall_mask", "adamerging"} <= methods(advice)
    assert "signs" in told(advice, "avoid")
    assert "none of them was made for" in told(advice, "avoid")
    assert not advice.of("first")
    assert not advice.facts.batch_norm


def test_the_robust_family_and_a_stranger_and_another_architecture() -> None:
    advice = stockpot.advise(
        "cifar10-linf", ["cifar10-l2", "cifar10-l1", "icons-linf", "icons-vit"]
    )
    assert [m.name for m in advice.facts.usable] == ["cifar10-l2", "cifar10-l1"]
    first = told(advice, "first")
    assert "leave out icons-linf: trained apart" in first
    assert "leave out icons-vit: it is of another architecture" in first
    assert "BatchNorm" in first
    (season,) = [item for item in advice.of("works") if "seasoning" in item.what]
    assert "-p threats=linf:8/255,l2:128/255,l1:12" in season.commands[0]
    assert not methods(advice) & {"iso_cts", "regmean", "smile"}  # convolutions; one task
    # As the guide says: between two families 0.24, and in one of them not below 0.94.
    assert advice.facts.members[2].kin == pytest.approx(0.24, abs=0.005)
    (far,) = stockpot.advise("icons-linf", ["icons-nominal"]).facts.members
    assert far.kin == pytest.approx(0.94, abs=0.005)
    assert "iso_cts" in told(advice, "avoid")
    for item in advice.items:  # what is left out is in no merge
        assert not [c for c in item.commands if "fuse" in c and "icons" in c]


def test_trainings_apart_are_not_merged_as_they_are(vits: dict[str, str]) -> None:
    advice = stockpot.advise(vits["start"], [vits["other"], vits["third"]])
    assert "merging them as they are" in told(advice, "avoid")
    assert "align before you merge" in told(advice, "first")
    assert [c for item in advice.of("first") for c in item.commands if "fuse pleas" in c]
    assert "how much alignment mends here" in told(advice, "open")
    assert not advice.of("works")
    assert not advice.facts.usable
    wrong = stockpot.advise(vits["other"], [vits["start"], vits["tuned"]])
    assert "give another base" in told(wrong, "first")
    assert "not of it" in told(wrong, "first")


@pytest.mark.parametrize("fits", ["whole", "other classes"])
def test_residual_networks_apart_are_sent_to_pleas_where_their_classes_are_one(fits: Fits) -> None:
    members = tuple(Member(name, name, fits=fits, kin=0.1) for name in ("b", "c"))
    facts = Facts("a", "a", members, batch_norm=True, permutable=True, relatives=0.1)
    (item,) = [one for one in strangers(facts, Words(facts)) if one.kind == "first"]
    command = "stockpot fuse pleas a b c --task DATA@train -p match=activations -o fused/pleas"
    assert (command in item.commands) == (fits == "whole")
    assert (item.evidence == ("units",)) == (fits == "whole")
    assert "stockpot fuse average a b c --align -o fused/aligned" in item.commands


def test_one_member_copies_and_the_base_itself(vits: dict[str, str], tmp_path: Path) -> None:
    again = tmp_path / "again.safetensors"
    save_file(load_file(Path(vits["tuned"]) / "model.safetensors"), again)
    twice = {"a": vits["tuned"], "b": vits["tuned"], "c": str(again), "d": vits["start"]}
    advice = stockpot.advise(vits["start"], twice)
    assert [m.same_as for m in advice.facts.members] == ["", "a", "a", "start"]
    assert told(advice, "first").count("name a once") == 2
    assert "leave out d: its weights are those of start" in told(advice, "first")
    assert methods(advice) == {"wise_ft"}  # one is left


def test_heads_that_differ(vits: dict[str, str]) -> None:
    advice = stockpot.advise(vits["start"], [vits["tuned"], vits["renamed"], vits["wider"]])
    fits = {member.name: member.fits for member in advice.facts.members}
    assert fits == {"tuned": "whole", "renamed": "other classes", "wider": "other head"}
    (head,) = [item for item in advice.of("first") if "own head" in item.what]
    assert "renamed and wider" in head.why
    assert "cup, jug" in head.why
    assert any("--head each" in command for command in head.commands)
    merges = [
        c for item in advice.of("works") for c in item.commands if c.startswith("stockpot fuse")
    ]
    assert merges
    assert all("--head each" in command for command in merges)
    assert "heads of their own" in told(advice, "open")


def test_adapters() -> None:
    advice = stockpot.advise(weights(), {"a": PEFT / "rslora", "b": PEFT / "whole"})
    ranks = [json.loads((PEFT / n / "adapter_config.json").read_text())["r"]
             for n in ("rslora", "whole")]  # fmt: skip
    assert [member.adapter for member in advice.facts.members] == ranks
    assert "LoRA adapters" in told(advice, "open")
    assert methods(advice) == {"average"}  # what full fine-tunings showed is not said of these
    assert all(m.spectrum and 0 < m.spectrum.share < 1 for m in advice.facts.members)
    other = stockpot.advise("icons-vit", {"a": PEFT / "rslora", "b": "icons-vit-plain"})
    assert "leave out a: it is of another architecture" in told(other, "first")


def test_nothing_fits_and_nothing_is_asked(vits: dict[str, str]) -> None:
    advice = stockpot.advise("icons-resnet", [vits["start"], vits["tuned"]])
    assert "is of another architecture than start and tuned" in told(advice, "avoid")
    assert not advice.of("works")
    with pytest.raises(BadParameterError, match="at least one"):
        stockpot.advise("icons-vit", [])
    with pytest.raises(UserError):
        stockpot.advise("icons-vit", ["nowhere/at-all"])


def test_lines_to_members_on_a_few_images() -> None:
    """Halfway is the mean of the weights: what `fuse average` makes of the two, measured."""
    advice = stockpot.advise("icons-vit", ["icons-vit-plain"], data="icons", limit=24)
    (member,) = advice.facts.members
    assert member.line is not None
    data = stockpot.load_dataset("icons", limit=24)
    models = {"base": "icons-vit", "member": "icons-vit-plain"}
    seen = stockpot.measure(models, "clean", data=data)
    assert [cell.score("accuracy").value for cell in seen] == pytest.approx(
        [member.line.base, member.line.member]
    )
    ends = (member.line.base + member.line.member) / 2
    assert member.line.barrier == pytest.approx(ends - member.line.halfway)
    assert member.line.low <= member.line.barrier <= member.line.high


def test_the_command_and_the_commands_that_it_names() -> None:
    shown = invoke("advise", "icons-vit", "icons-vit-plain", "icons-vit-cutmix", "--json")
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.output)
    assert [member["name"] for member in found["facts"]["members"]] == [
        "icons-vit-plain", "icons-vit-cutmix",
    ]  # fmt: skip
    assert found["advice"][0]["evidence"][0]["study"].endswith("README.md")
    text = invoke("advise", "icons-vit", "icons-vit-plain", "icons-vit-cutmix").output
    assert "What will work" in text
    known = set(typer.main.get_command(app).commands)
    pools = (("clip-base", CLIP), ("cifar10-linf", ["cifar10-l2"]), ("icons-vit", CLIP[:1]))
    commands = [c for base, pool in pools for item in stockpot.advise(base, pool).items
                for c in item.commands]  # fmt: skip
    assert len(commands) > 8
    for words in map(shlex.split, commands):
        assert words[0] == "stockpot"
        assert words[1] in known
        options = invoke(words[1], "--help").output
        assert not [w for w in words if w.startswith("--") and w not in options]
        if words[1] == "fuse":
            assert words[2] in stockpot.list("fusers")


@pytest.mark.parametrize("key", EVIDENCE)
def test_the_numbers_behind_the_advice_stand_in_their_study(key: str) -> None:
    """And the guide says the same, word by word."""
    evidence = EVIDENCE[key]
    page = (ROOT / evidence.link).read_text(encoding="utf-8")
    plain = re.sub(r"[+*]", "", " ".join(page.split()))
    numbers = re.findall(r"[-+]?\d+\.\d(?: \[[-+]?\d+\.\d, [-+]?\d+\.\d\])?", evidence.because)
    numbers = numbers or re.findall(r"\d+", evidence.because)
    assert numbers
    assert not [number for number in numbers if number.replace("+", "") not in plain]
    guide = (ROOT / "docs" / "choosing.md").read_text(encoding="utf-8")
    assert evidence.because in guide
    assert f"studies/{evidence.study}/README.md" in guide
