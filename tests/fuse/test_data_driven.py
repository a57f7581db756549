"""Data-driven methods against closed forms, on dual encoders, and what they keep and refuse."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

import stockpot
from pico import CLASSES
from stockpot.errors import BadCheckpointError, BadDataError, BadParameterError, UserError
from stockpot.fuse.learning.assemble import find_data
from stockpot.fuse.learning.task_pool import TaskPool
from stockpot.fuse.run import fuse, plan, sweep
from task_pools import ClipPool, flat_model, make_clip_pool, random_dataset
from towers import dual

FEW: dict[str, dict[str, Any]] = {
    "adamerging": {"steps": 2},
    "concrete": {"steps": 1, "adapt_steps": 1, "merge": "adamerging_layer"},
    "fisher": {"examples": 6, "batch_size": 3},
    "regmean": {"examples": 8},
    "regmean_pp": {"examples": 8},
    "esm": {"examples": 8},
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ClipPool:
    return make_clip_pool(tmp_path_factory.mktemp("pool"))


def seen(data: Any) -> Tensor:
    return data.images.pixels.float().div(255).flatten(1)


@pytest.mark.parametrize("method", FEW)
def test_the_vision_tower_alone_is_fused(method: str, pool: ClipPool, tmp_path: Path) -> None:
    out = fuse(
        method, pool.members, base=pool.base, tasks=pool.tasks, out=tmp_path / "out", **FEW[method]
    )
    assert json.loads((out / "config.json").read_text())["model_type"] == "clip"
    for name, data in pool.tasks.items():
        made = stockpot.load_model(out, classes=data.classes)
        start = stockpot.load_model(pool.base, classes=data.classes)
        assert made.classes == data.classes, name
        after, before = made.state_dict(), start.state_dict()
        moved = {key for key in before if not torch.equal(before[key], after[key])}
        assert moved
        assert all("vision_model" in key for key in moved)


@pytest.mark.parametrize("in_chunks", [False, True])
def test_adamerging_follows_autograd(
    pool: ClipPool, in_chunks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coefficients after three steps equal those of a loop that differentiates through the mix."""
    monkeypatch.setattr(TaskPool, "in_chunks", in_chunks)
    steps, init, lr = 3, 0.3, 0.05
    learned = _learned("adamerging", pool, steps=steps, init=init, lr=lr, batch_size=24)
    models = {n: stockpot.load_model(pool.base, classes=d.classes) for n, d in pool.tasks.items()}
    first = next(iter(models.values()))
    names = [k for k, _ in first.named_parameters() if "vision_model" in k]
    start = {k: v.detach().clone() for k, v in first.named_parameters() if k in names}
    changes = []
    for path, data in zip(pool.members.values(), pool.tasks.values(), strict=True):
        state = stockpot.load_model(path, classes=data.classes).state_dict()
        changes.append({k: state[k] - start[k] for k in names})
    free = torch.full((3, len(names)), init, requires_grad=True)
    adam = torch.optim.Adam([free], lr=lr)
    for _ in range(steps):
        total = torch.zeros(())
        for name, data in pool.tasks.items():
            mixed = {
                k: start[k] + sum(free[t, i] * changes[t][k] for t in range(3))
                for i, k in enumerate(names)
            }
            # A batch of the whole dataset: its order does not matter for the mean entropy.
            logits = torch.func.functional_call(models[name], mixed, (data.images.pixels,))
            p = logits.softmax(1)
            total = total - (p * torch.log(p + 1e-8)).sum(1).mean()
        adam.zero_grad()
        total.backward()
        adam.step()
    got = learned["coefficients"]
    order = [learned["names"].index(k.removeprefix("network.model.")) for k in names]
    # A key's bias changes no attention: its gradient is rounding, which Adam blows up to a step.
    kept = [i for i, name in enumerate(names) if not name.endswith("k_proj.bias")]
    torch.testing.assert_close(got[:, order][:, kept], free.detach()[:, kept], rtol=1e-4, atol=1e-4)


def test_adamerging_without_steps_is_task_arithmetic(pool: ClipPool) -> None:
    for layers in ("task", "layer"):
        got = fuse(
            "adamerging", pool.members, base=pool.base, tasks=pool.tasks, steps=0, layers=layers
        )
        want = fuse("task_arithmetic", pool.members, base=pool.base)
        assert got.keys() == want.keys()
        for key, value in want.items():
            assert torch.equal(got[key], value), key


def test_tasks_in_one_pass_or_one_by_one(pool: ClipPool) -> None:
    alone, joined = (
        _learned("adamerging", pool, steps=3, lr=0.05, together=size) for size in (1, 3)
    )
    kept = [i for i, name in enumerate(alone["names"]) if not name.endswith("k_proj.bias")]
    torch.testing.assert_close(
        alone["coefficients"][:, kept], joined["coefficients"][:, kept], rtol=1e-4, atol=1e-4
    )


def test_adaptation_lowers_the_entropy_and_never_reads_labels(pool: ClipPool) -> None:
    about = _about("adamerging", pool, steps=60, lr=0.02)
    assert about["facts"]["entropy_last"] < about["facts"]["entropy_first"]
    blind = {
        name: random_dataset(data.classes, seed=index)
        for index, (name, data) in enumerate(pool.tasks.items())
    }
    for data in blind.values():
        data.labels.zero_()
    for method in ("adamerging", "concrete", "fisher", "regmean", "regmean_pp"):
        one = fuse(method, pool.members, base=pool.base, tasks=pool.tasks, **FEW[method])
        two = fuse(method, pool.members, base=pool.base, tasks=blind, **FEW[method])
        assert all(torch.equal(one[key], two[key]) for key in one), method


def test_regmean_solves_least_squares_on_a_linear_network() -> None:
    """The last layer's inputs differ by member; here lstsq solves, not the normal equations."""
    members = [flat_model(seed) for seed in (1, 2, 3)]
    tasks = [random_dataset(CLASSES, n=40, seed=seed, side=2) for seed in (4, 5, 6)]
    got = fuse("regmean", members, tasks=tasks, examples=40, off_diagonal=1.0)
    for layer in ("first", "last"):
        rows, outputs = [], []
        for member, data in zip(members, tasks, strict=True):
            x = seen(data).double()
            if layer == "last":
                x = x @ member.network.first.weight.double().T
            weight = getattr(member.network, layer).weight.double()
            scale = len(x) ** -0.5  # every task counts alike, however many rows it has
            rows.append(x * scale)
            outputs.append(x @ weight.T * scale)
        want = torch.linalg.lstsq(torch.cat(rows), torch.cat(outputs)).solution.T
        found = got[f"{layer}.weight"].double()
        torch.testing.assert_close(found, want.detach(), rtol=1e-4, atol=1e-5)


def test_regmean_pp_feeds_layers_from_the_merged_prefix(pool: ClipPool) -> None:
    """The first block meets the same inputs; later ones do not."""
    both = [
        fuse(method, pool.members, base=pool.base, tasks=pool.tasks, examples=24)
        for method in ("regmean", "regmean_pp")
    ]
    second = "vision_model.encoder.layers.1.mlp.fc1.weight"
    assert not torch.equal(both[0][second], both[1][second])
    equal = [
        fuse(method, dict.fromkeys(("x",), pool.members["ants"]), base=pool.base,
             tasks={"x": pool.tasks["ants"]}, examples=24)
        for method in ("regmean", "regmean_pp")
    ]  # fmt: skip
    own = stockpot.load_model(pool.members["ants"], classes=("a",)).state_dict()
    for got in equal:  # one member alone is its own best answer
        for key, value in got.items():
            torch.testing.assert_close(value, own[f"network.model.{key}"])


def test_an_ill_conditioned_layer_is_reported_and_takes_the_mean(tmp_path: Path) -> None:
    """With fewer images than inputs, directions that were never seen take the plain mean."""
    members = [flat_model(seed) for seed in (1, 2)]
    tasks = [random_dataset(CLASSES, n=3, seed=seed, side=2) for seed in (4, 5)]
    got = fuse(
        "regmean", members, tasks=tasks, examples=3, off_diagonal=1.0, save=str(tmp_path / "w")
    )
    facts = json.loads((tmp_path / "w.json").read_text())["facts"]
    assert facts["ill_conditioned"] >= 1
    weights = [member.network.first.weight.detach() for member in members]
    x = torch.cat([seen(data) for data in tasks]).double()
    unseen = torch.linalg.svd(x).Vh[6:]  # 12 inputs, 6 images
    mean = ((weights[0] + weights[1]) / 2).double()
    torch.testing.assert_close(
        got["first.weight"].double() @ unseen.T, mean @ unseen.T, rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("expectation", ["exact", "joint"])
def test_fisher_of_a_linear_classifier_is_its_closed_form(expectation: str, tmp_path: Path) -> None:
    """For logits z = W h: d log p_c / dW = (e_c - p) h^T."""
    members = [flat_model(seed) for seed in (1, 2)]
    tasks = [random_dataset(CLASSES, n=10, seed=seed, side=2) for seed in (4, 5)]
    fuse("fisher", members, tasks=tasks, examples=10, batch_size=4, chunk=3,
         expectation=expectation, save=str(tmp_path / "w"))  # fmt: skip
    saved = load_file(tmp_path / "w.safetensors")
    for index, (member, data) in enumerate(zip(members, tasks, strict=True)):
        h = seen(data) @ member.network.first.weight.T
        p = (h @ member.network.last.weight.T).softmax(1).detach()
        eye = torch.eye(4)
        each = eye[None] - p[:, None]  # images x classes x outputs
        if expectation == "exact":
            squares = torch.einsum("nc,nco,nh->oh", p, each**2, h.detach() ** 2)
        else:
            joint = torch.einsum("nc,nco->no", p.sqrt(), each)
            squares = torch.einsum("no,nh->oh", joint**2, h.detach() ** 2)
        torch.testing.assert_close(saved[f"{index}.last.weight"], squares / 10)


def test_fisher_per_batch_of_one_is_per_sample() -> None:
    members = [flat_model(seed) for seed in (1, 2)]
    tasks = [random_dataset(CLASSES, n=10, seed=seed, side=2) for seed in (4, 5)]
    ones, samples, batches = (
        fuse("fisher", members, tasks=tasks, examples=10, square=square, batch_size=size)
        for square, size in (("batch", 1), ("sample", 5), ("batch", 5))
    )
    for key in ones:
        torch.testing.assert_close(ones[key], samples[key])
    assert any(not torch.allclose(batches[key], samples[key], rtol=1e-3) for key in ones)


def test_fisher_with_equal_information_is_the_average() -> None:
    from stockpot.fuse.statistics.fisher import shares

    assert shares([2.0, 2.0], None, normalize=True, floor=1e-6) == [0.25, 0.25]
    members = [flat_model(seed) for seed in (1, 2)]
    # Without images that say otherwise (all black), both first layers have no information.
    tasks = [random_dataset(CLASSES, n=6, seed=1, side=2)] * 2
    tasks[0].images.pixels.zero_()
    got = fuse("fisher", members, tasks=tasks, examples=6)
    want = fuse("average", members)
    for key in want:
        torch.testing.assert_close(got[key], want[key])


@pytest.mark.parametrize("method", FEW)
def test_what_was_learned_is_saved_and_used_again(
    method: str, pool: ClipPool, tmp_path: Path
) -> None:
    first = fuse(method, pool.members, base=pool.base, tasks=pool.tasks,
                 save=str(tmp_path / "learned"), **FEW[method])  # fmt: skip
    again = fuse(method, pool.members, base=pool.base, load=str(tmp_path / "learned"))
    assert all(torch.equal(first[key], again[key]) for key in first)
    turned = dict(reversed(pool.members.items()))
    with pytest.raises(BadParameterError, match="in the order"):
        fuse(method, turned, base=pool.base, load=str(tmp_path / "learned"))
    two = dict(list(pool.members.items())[:2])
    with pytest.raises(BadParameterError, match="here are 2"):
        fuse(method, two, base=pool.base, load=str(tmp_path / "learned"))
    other = "fisher" if method != "fisher" else "regmean"
    with pytest.raises(BadParameterError, match=f"learned by '{method}'"):
        fuse(other, pool.members, base=pool.base, load=str(tmp_path / "learned"))


@pytest.mark.parametrize("merge", ["task_arithmetic", "adamerging_task", "adamerging_layer"])
def test_the_mask_is_the_same_every_time(merge: str, pool: ClipPool) -> None:
    """Unlike the peer, which draws another mask for every evaluation; that is `resampled`."""
    settings = {"steps": 1, "adapt_steps": 1, "merge": merge}
    one, two, three, four = (
        fuse("concrete", pool.members, base=pool.base, tasks=pool.tasks, mask=mask, **settings)
        for mask in ("fixed", "fixed", "resampled", "resampled")
    )
    key = next(name for name in one if "vision_model" in name and "fc1.weight" in name)
    assert torch.equal(one[key], two[key])
    assert not torch.equal(three[key], four[key])


def test_the_masks_gradient_is_autograds(pool: ClipPool) -> None:
    from stockpot.fuse.adaptive.mask import Mask

    held = _pool_of(pool)
    mask = Mask(held, 0.5, seed=3)
    mask.logits.data += 0.3 * torch.randn(
        len(held.flat), generator=torch.Generator().manual_seed(1)
    )
    mask.finish()
    mask.mix(torch.full((3, len(held.names)), 0.3))
    held.gradient.copy_(torch.randn(len(held.flat), generator=torch.Generator().manual_seed(2)))
    logits = mask.logits.detach().clone().requires_grad_(True)
    noise = torch.logit(mask.soft.double()).float() * 0.5 - mask.logits.detach()
    soft = ((logits + noise) / 0.5).sigmoid()
    total = torch.zeros(())
    for span in held.spans:
        part = soft[span] / soft[span].mean()
        total = total + (part * mask.change[span] * held.gradient[span]).sum()
    total.backward()
    for span in held.spans:
        torch.testing.assert_close(mask.gradient()[span], logits.grad[span], rtol=1e-3, atol=1e-6)


def test_soups_on_held_out_images() -> None:
    data = random_dataset(CLASSES, n=60, seed=9, side=2)
    members = [flat_model(seed) for seed in range(4)]
    right = lambda model: (model(data.images.pixels).argmax(1) == data.labels).float().mean()  # noqa: E731
    greedy = flat_model(0)
    greedy.network.load_state_dict(fuse("greedy_soup", members, tasks=data))
    assert right(greedy) >= max(right(member) for member in members)
    uniform = fuse("learned_soup", members, tasks=data, epochs=0)
    for key, value in fuse("uniform_soup", members).items():
        torch.testing.assert_close(uniform[key], value)
    loss = lambda model: F.cross_entropy(model(data.images.pixels), data.labels)  # noqa: E731
    learned, plain = flat_model(0), flat_model(0)
    plain.network.load_state_dict(uniform)
    learned.network.load_state_dict(
        fuse("learned_soup", members, tasks=data, epochs=30, batch_size=60)
    )
    # The temperature is free while it learns, so that the best scaled loss is what must fall.
    scaled = lambda model: min(  # noqa: E731
        float(F.cross_entropy(model(data.images.pixels).detach() * t, data.labels))
        for t in torch.logspace(-2, 1, 40)
    )
    assert scaled(learned) <= scaled(plain) + 1e-3
    assert torch.isfinite(loss(learned))


def test_members_with_heads_of_their_own(tmp_path: Path) -> None:
    """Different classes: the trunk is fused, each task is judged with its own head."""
    members = [flat_model(1, classes=4), flat_model(2, classes=3)]
    members[1].classes = ("x", "y", "z")
    tasks = [
        random_dataset(CLASSES, n=20, seed=1, side=2),
        random_dataset(("x", "y", "z"), n=20, seed=2, side=2),
    ]
    base = flat_model(0, classes=4)
    with pytest.raises(BadCheckpointError):
        fuse("adamerging", members, base=base, tasks=tasks, steps=1)
    got = fuse("adamerging", members, base=base, tasks=tasks, steps=2, exclude=["last.*"])
    assert torch.equal(got["last.weight"], base.network.last.weight)
    assert not torch.equal(got["first.weight"], base.network.first.weight)


def test_a_head_that_members_share_but_not_the_base(tmp_path: Path) -> None:
    """The members' own head decides, though the base's is written."""
    members = [flat_model(1), flat_model(2)]
    members[1].network.last.load_state_dict(members[0].network.last.state_dict())
    data = random_dataset(CLASSES, n=8, seed=1, side=2)
    settings = {"tasks": [data] * 2, "examples": 8, "exclude": ["last.*"]}
    found = []
    for seed in (0, 3):  # two bases whose heads differ
        fuse("fisher", members, base=flat_model(seed), save=str(tmp_path / str(seed)), **settings)
        found.append(load_file(tmp_path / f"{seed}.safetensors"))
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


def test_members_may_be_bare_weights(tmp_path: Path) -> None:
    """Files and state dicts take the base's architecture; a head left out is their own."""
    models = [flat_model(1), flat_model(2)]
    data = [random_dataset(CLASSES, n=8, seed=seed, side=2) for seed in (1, 2)]
    paths = []
    for index, model in enumerate(models):
        paths.append(tmp_path / f"{index}.safetensors")
        save_file(dict(model.network.state_dict()), paths[-1])
    states = [dict(model.network.state_dict()) for model in models]
    found = [
        fuse("fisher", members, base=flat_model(0), tasks=data, exclude=["last.*"], examples=8)
        for members in (models, states, paths)
    ]
    for other in found[1:]:
        assert all(torch.equal(found[0][key], other[key]) for key in found[0])


def siglip_pool() -> tuple[Any, list[Any], list[Any]]:
    """A pico SigLIP and two fine-tunings, in memory; its pooling is an attention of torch's own."""
    base = dual("siglip")
    members = []
    for seed in (1, 2):
        member = copy.deepcopy(base)
        generator = torch.Generator().manual_seed(seed)
        for name, value in member.named_parameters():
            if "vision_model" in name:
                value.data += 0.02 * torch.randn(value.shape, generator=generator)
        members.append(member)
    return base, members, [random_dataset(CLASSES, n=8, seed=seed) for seed in (1, 2)]


@pytest.mark.parametrize("method", FEW)
def test_siglip_in_memory(method: str) -> None:
    base, members, tasks = siglip_pool()
    before = {key: value.clone() for key, value in base.network.model.state_dict().items()}
    got = fuse(method, members, base=base, tasks=tasks, **FEW[method])
    assert got.keys() == before.keys()
    for key, value in got.items():
        assert torch.isfinite(value).all()
        assert ("vision_model" in key) or torch.equal(value, before[key]), key
    after = base.network.model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)  # the user's model


def test_a_module_needs_a_folder_to_come_from(tmp_path: Path) -> None:
    base, members, tasks = siglip_pool()
    with pytest.raises(BadParameterError, match="as model folders"):
        fuse("wemoe", members, base=base, tasks=tasks, steps=1, out=tmp_path / "out")


def test_grams_take_one_pass_per_member() -> None:
    models = [flat_model(1), flat_model(2)]
    base = flat_model(0)
    passes: list[int] = []
    data = [random_dataset(CLASSES, n=20, seed=seed, side=2) for seed in (1, 2)]

    class Counting(type(base.network)):  # type: ignore[misc]
        def forward(self, pixels: Tensor) -> Tensor:
            passes.append(len(pixels))
            return super().forward(pixels)

    base.network.__class__ = Counting
    fuse("regmean", models, base=base, tasks=data, examples=16, batch_size=8)
    assert passes == [8, 8, 8, 8]


def test_errors_say_what_to_do(pool: ClipPool, tmp_path: Path) -> None:
    two = dict(list(pool.tasks.items())[:2])
    calls: list[tuple[str, dict[str, Any], type[UserError], str]] = [
        ("adamerging", {}, BadParameterError, "one dataset per member"),
        ("adamerging", {"tasks": two}, BadParameterError, "one dataset for each of ants"),
        ("ties", {"tasks": pool.tasks}, BadParameterError, "uses no data"),
        ("wemoe", {"tasks": pool.tasks}, BadParameterError, "out=FOLDER"),
        ("adamerging", {"tasks": pool.tasks, "init": [0.1, 0.5]}, BadParameterError, "one value"),
        ("adamerging", {"load": str(tmp_path / "none")}, BadParameterError, "expected"),
        ("regmean", {"off_diagonal": 2}, BadParameterError, "off_diagonal"),
        ("fisher", {"square": "batch", "expectation": "exact"}, BadParameterError, "per image"),
    ]
    for method, settings, kind, words in calls:
        with pytest.raises(kind, match=words):
            fuse(method, pool.members, base=pool.base, **settings)
    members = [flat_model(1), flat_model(2)]
    wrong = random_dataset(("x", "y"), side=2)
    with pytest.raises(BadDataError, match="model has 4: "):
        fuse("regmean", members, tasks=[wrong, wrong])
    states = [dict(member.network.state_dict()) for member in members]
    with pytest.raises(BadParameterError, match="state dicts only"):
        fuse("regmean", states, tasks=[random_dataset(CLASSES, side=2)] * 2)


def test_a_sweep_and_a_plan(pool: ClipPool) -> None:
    made = sweep(
        "adamerging", pool.members, base=pool.base, tasks=pool.tasks, key="steps", values=[0, 2]
    )
    assert list(made) == ["steps=0", "steps=2"]
    found, larger = (
        plan("adamerging", pool.members, base=pool.base, batch_size=size) for size in (16, 1616)
    )
    # More images, more activations: of each at least what the embeddings of its patches take.
    assert larger.peak_bytes - found.peak_bytes > 1600 * 4 * 16 * 8


def _learned(method: str, pool: ClipPool, **settings: Any) -> dict[str, Any]:
    held = _pool_of(pool)
    from stockpot.fuse import fusers

    entry = fusers.get(method)
    learned = entry.function(**entry.validate(settings)).learn(held)
    return {**learned.tensors, "names": list(held.names)}


def _about(method: str, pool: ClipPool, **settings: Any) -> dict[str, Any]:
    held = _pool_of(pool)
    from stockpot.fuse import fusers

    entry = fusers.get(method)
    learned = entry.function(**entry.validate(settings)).learn(held)
    return {"facts": learned.facts}


def _pool_of(pool: ClipPool) -> Any:
    from stockpot.checkpoints.locate import locate
    from stockpot.fuse.job import prepare
    from stockpot.fuse.learning.assemble import assemble
    from stockpot.fuse.request import Options, Request

    members = {name: locate(path) for name, path in pool.members.items()}
    base = locate(pool.base)
    job = prepare(Request("adamerging", members, base, Options(), {"": {}}))
    return assemble(job.stream, members, base, list(pool.tasks.values()))


def test_a_split_is_chosen_by_name() -> None:
    found = find_data(["icons@train", "icons"], ["a", "b"])
    assert [one.split for one in found] == ["train", "test"]
    found = find_data(["icons@val", "icons"], ["a", "b"], split="train")
    assert [one.split for one in found] == ["val", "train"]
