"""Modules made by fusion: saved, loaded, measured, and true to what they say they compute."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import stockpot
from other_machine import on_another_machine
from pico import CLASSES
from stockpot.errors import BadCheckpointError, BadParameterError, UserError
from stockpot.fuse.run import fuse
from stockpot.models.classifier import Classifier
from stockpot.models.load import identify
from task_pools import ClipPool, make_clip_pool, random_dataset

FEW: dict[str, dict[str, Any]] = {
    "wemoe": {"steps": 2, "lr": 0.1},
    "smile": {"rank": 2, "gate_rank": 1},
    "mass": {},
    "surgery": {"steps": 1, "surgery_steps": 30, "examples": 24},
    "rank_one_moe": {"steps": 2, "lr": 0.1, "rank": 3, "top_k": 4},
    "dawe": {"steps": 2, "lr": 0.05},
    "twin": {"steps": 60, "lr": 0.05, "rank": 2, "examples": 24},
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> ClipPool:
    return make_clip_pool(tmp_path_factory.mktemp("pool"))


@pytest.fixture(scope="module")
def made(pool: ClipPool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("made")
    return {name: make(name, pool, folder / name, **few) for name, few in FEW.items()}


def make(method: str, pool: ClipPool, out: Path, **settings: Any) -> Path:
    tasks = None if method in ("smile", "mass") else pool.tasks
    return fuse(method, pool.members, base=pool.base, tasks=tasks, out=out, **settings)


@cache
def loaded(folder: Path, **options: Any) -> Classifier:
    return stockpot.load_model(folder, **options)


def logits(folder: Path, data: Any, rows: Any = slice(None), **options: Any) -> Tensor:
    model = loaded(folder, **{"classes": data.classes, **options})
    with torch.no_grad():
        return model(data.images.pixels[rows])


@pytest.mark.parametrize("method", FEW)
def test_no_prediction_depends_on_the_batch(method: str, pool: ClipPool, made: Any) -> None:
    for data in pool.tasks.values():
        whole = logits(made[method], data)
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(logits(made[method], data, order), whole[order])
        ones = torch.cat([logits(made[method], data, slice(i, i + 1)) for i in range(4)])
        torch.testing.assert_close(ones, whole[:4])


@pytest.mark.parametrize("method", FEW)
def test_equal_experts_leave_the_base_as_it_is(method: str, pool: ClipPool, tmp_path: Path) -> None:
    copies = {name: tmp_path / name for name in pool.tasks}
    for path in copies.values():
        shutil.copytree(pool.base, path)
    same = ClipPool(pool.base, copies, pool.tasks)
    out = make(method, same, tmp_path / "out", **{**FEW[method], "surgery_steps": 0}
               if method == "surgery" else FEW[method])  # fmt: skip
    for data in pool.tasks.values():
        torch.testing.assert_close(logits(out, data), logits(pool.base, data))


def test_batch_routing_is_there_for_comparison(pool: ClipPool, tmp_path: Path) -> None:
    """What the peer does: predictions change with the company an image keeps."""
    out = make("wemoe", pool, tmp_path / "out", steps=20, lr=0.3, routing="batch")
    data = pool.tasks["ants"]
    whole, alone = logits(out, data), logits(out, data, slice(0, 1))
    assert not torch.allclose(whole[:1], alone, rtol=1e-4)


@pytest.mark.parametrize("method", FEW)
def test_modules_are_measured_like_any_model(
    method: str, pool: ClipPool, made: Any, tmp_path: Path
) -> None:
    data = pool.tasks["numbers"]
    (result,) = stockpot.measure({"m": str(made[method])}, "clean", data=data, out=tmp_path / "r")
    want = (logits(made[method], data).argmax(1) == data.labels).double().mean()
    assert result.scores[0].value == pytest.approx(float(want))
    assert result.key.model_fingerprint == identify(made[method])


@pytest.mark.parametrize("method", ["wemoe", "surgery", "twin"])
def test_routers_and_corrections_are_used_again(
    method: str, pool: ClipPool, tmp_path: Path
) -> None:
    first = make(method, pool, tmp_path / "a", save=str(tmp_path / "kept"), **FEW[method])
    again = fuse(
        method, pool.members, base=pool.base, out=tmp_path / "b", load=str(tmp_path / "kept"),
        **({"rank": 2} if method == "twin" else {}),
    )  # fmt: skip
    data = pool.tasks["ants"]
    assert torch.equal(logits(first, data), logits(again, data))


def test_a_router_that_is_sure_gives_the_member_itself(pool: ClipPool, made: Any) -> None:
    """Whatever is shared: what a member has beyond it leads to that member, if no rank is cut."""
    folder = make("twin", pool, made["twin"].with_name("whole"), **FEW["twin"] | {"rank": 999})
    for number, (name, data) in enumerate(pool.tasks.items()):
        module = stockpot.load_model(folder, classes=data.classes)
        (router,) = [part for part in module.modules() if type(part).__name__ == "Router"]
        images = data.images.pixels[:3]
        with torch.no_grad():
            plain = module(images)
            for part in (*router.weights, *router.biases):
                part.zero_()
            router.biases[-1][number] = 200.0
            sure = module(images)
        torch.testing.assert_close(sure, logits(pool.members[name], data)[:3], rtol=1e-4, atol=1e-4)
        assert not torch.allclose(plain, sure, rtol=1e-3)


def test_a_router_tells_tasks_apart_and_mixes_by_its_shares(pool: ClipPool, made: Any) -> None:
    """For one image: weights by the formula, in the plain network of the shared model."""
    data = pool.tasks["numbers"]
    image = data.images.pixels[:1]
    module = stockpot.load_model(made["twin"], classes=data.classes)
    assert json.loads((made["twin"] / "config.json").read_text())["facts"]["told_apart"] > 0.6
    (router,) = [part for part in module.modules() if type(part).__name__ == "Router"]
    said: list[Tensor] = []
    router.register_forward_hook(lambda m, x, y: said.append(y.detach()[0].softmax(dim=0)))
    with torch.no_grad():
        got = module(image)
    plain = stockpot.load_model(made["twin"] / "base", classes=data.classes)
    state = plain.state_dict()
    base = stockpot.load_model(pool.base, classes=data.classes).state_dict()
    members = [
        stockpot.load_model(path, classes=data.classes).state_dict()
        for path in pool.members.values()
    ]
    for name, shared in state.items():
        if "vision_model" not in name or not shared.is_floating_point():
            continue
        total = base[name] + 0.3 * sum(member[name] - base[name] for member in members)
        torch.testing.assert_close(shared, total)
        for share, member in zip(said[0], members, strict=True):
            own = member[name] - total
            if own.ndim == 2:
                left, values, right = torch.linalg.svd(own, full_matrices=False)
                own = (left[:, :2] * values[:2]) @ right[:2]
            state[name] = state[name] + share * own
    plain.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(got, plain(image), rtol=1e-4, atol=1e-4)


def test_coefficients_of_an_images_own(pool: ClipPool, made: Any) -> None:
    """With a router of one answer it is task arithmetic; the features are the base's."""
    data = pool.tasks["foxes"]
    module = stockpot.load_model(made["dawe"], classes=data.classes)
    (router,) = [part for part in module.modules() if type(part).__name__ == "Router"]
    images = data.images.pixels[:2]
    wanted = [0.5, -0.2, 0.9]
    with torch.no_grad():
        learned = module(images)
        router.weights[0].zero_()
        router.biases[-1].copy_(torch.tensor(wanted))
        got = module(images)
    state = fuse("task_arithmetic", pool.members, base=pool.base, scale=1.0, weights=wanted)
    plain = stockpot.load_model(pool.base, classes=data.classes)
    vision = {f"network.model.{k}": v for k, v in state.items() if "vision_model" in k}
    assert vision
    plain.load_state_dict(vision, strict=False)
    with torch.no_grad():
        torch.testing.assert_close(got, plain(images), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(learned, got, rtol=1e-3)


@pytest.mark.parametrize("shape", [{}, {"density": 0.1, "shared": True}, {"depth": 1}])
def test_a_weight_ensemble_is_the_mixed_network(
    shape: dict[str, Any], pool: ClipPool, tmp_path: Path
) -> None:
    """For one image: form the MLPs' weights by the router's own gates and run the plain network."""
    out = make("wemoe", pool, tmp_path / "out", steps=3, lr=0.3, **shape)
    data = pool.tasks["foxes"]
    image = data.images.pixels[:1]
    module = stockpot.load_model(out, classes=data.classes)
    gates: list[Tensor] = []
    for part in module.modules():  # a shared router is met once
        if type(part).__name__ == "Router":
            part.register_forward_hook(lambda m, x, y: gates.append(y.detach()[0]))
    with torch.no_grad():
        got = module(image)
    assert len(gates) == 2  # one per layer
    base = stockpot.load_model(pool.base, classes=data.classes)
    start = base.state_dict()
    plain = fuse("task_arithmetic", pool.members, base=pool.base, scale=0.3)
    experts = [
        stockpot.load_model(path, classes=data.classes).state_dict()
        for path in pool.members.values()
    ]
    mixed = {f"network.model.{name}": value for name, value in plain.items()}
    for layer, gate in enumerate(gates):
        for name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"):
            key = f"network.model.vision_model.encoder.layers.{layer}.mlp.{name}"
            changes = [expert[key] - start[key] for expert in experts]
            if shape.get("density"):
                changes = [_largest(change, 0.1) for change in changes]
            mixed[key] = start[key] + sum(g * c for g, c in zip(gate, changes, strict=True))
    base.load_state_dict(mixed, strict=False)
    with torch.no_grad():
        torch.testing.assert_close(got, base(image), rtol=1e-4, atol=1e-4)


def _largest(change: Tensor, share: float) -> Tensor:
    flat = change.flatten()
    kept = flat.abs().topk(-int(-share * (len(flat) - 1) // 1)).indices
    sparse = torch.zeros_like(flat)
    sparse[kept] = flat[kept]
    return sparse.view(change.shape)


def test_without_steps_gates_are_near_their_start(pool: ClipPool, tmp_path: Path) -> None:
    """Constant gates of 0.3 make the whole network task arithmetic."""
    out = make("wemoe", pool, tmp_path / "out", steps=0, depth=0)
    plain = fuse("task_arithmetic", pool.members, base=pool.base, out=tmp_path / "plain")
    data = pool.tasks["ants"]
    torch.testing.assert_close(logits(out, data), logits(plain, data), rtol=1e-4, atol=1e-4)


def test_the_sparse_form_is_small(pool: ClipPool, tmp_path: Path) -> None:
    dense = make("wemoe", pool, tmp_path / "dense", steps=0)
    sparse = make("wemoe", pool, tmp_path / "sparse", steps=0, density=0.1, shared=True)
    sizes = [(path / "model.safetensors").stat().st_size for path in (dense, sparse)]
    assert sizes[1] < 0.5 * sizes[0]


def test_smile_with_full_rank_and_one_member_is_that_member(tmp_path: Path, pool: ClipPool) -> None:
    """One expert is always asked; at full rank its linear layers are the member's own."""
    out = fuse(
        "smile", {"x": pool.members["ants"]}, base=pool.base, out=tmp_path / "out", rank=99,
        gate_rank=99, others="average",
    )  # fmt: skip
    data = pool.tasks["ants"]
    torch.testing.assert_close(
        logits(out, data), logits(pool.members["ants"], data), rtol=1e-3, atol=1e-3
    )


def test_smile_asks_nobody_for_directions_without_a_change(
    pool: ClipPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes of rank one under gates of rank four: the other three are no part of a change."""
    base, grid = tmp_path / "base", 2.0**10
    shutil.copytree(pool.base, base)
    (file,) = base.glob("*.safetensors")
    start = {key: (value * grid).round() / grid for key, value in load_file(file).items()}
    save_file(start, file, metadata={"format": "pt"})
    members = {}
    for number, name in enumerate(pool.tasks):
        generator = torch.Generator().manual_seed(number)
        state = dict(start)
        for key, value in start.items():
            if value.ndim == 2:  # exact, so that the rest of the rank is zero to the last digit
                signs = [torch.randn(side, generator=generator).sign() for side in value.shape]
                state[key] = value + 2.0**-5 * torch.outer(*signs)
        members[name] = shutil.copytree(base, tmp_path / name)
        save_file(state, members[name] / file.name, metadata={"format": "pt"})
    low = ClipPool(base, members, pool.tasks)
    here = make("smile", low, tmp_path / "here", rank=3, gate_rank=4)
    on_another_machine(monkeypatch)
    there = make("smile", low, tmp_path / "there", rank=3, gate_rank=4)
    for data in pool.tasks.values():
        torch.testing.assert_close(logits(here, data), logits(there, data), rtol=1e-4, atol=1e-5)


def test_smile_asks_the_expert_in_whose_directions_a_token_lies() -> None:
    from stockpot.models.modules.low_rank import ExpertLinear

    layer = nn.Linear(4, 3)
    up = torch.randn(2, 3, 1, generator=torch.Generator().manual_seed(0))
    down = torch.tensor([[[2.0, 0, 0, 0]], [[0, 0, 0, 5.0]]])
    gate = down / down.norm(dim=2, keepdim=True)
    experts = ExpertLinear(layer, up, down, gate, None, top_k=1)
    tokens = torch.tensor([[[1.0, 0, 0, 0.2], [0.2, 1, 0, -3.0]]])
    with torch.no_grad():
        want = layer(tokens)
        want[0, 0] += up[0, :, 0] * 2.0 * 1.0
        want[0, 1] += up[1, :, 0] * 5.0 * -3.0
        torch.testing.assert_close(experts(tokens), want)


def test_surgery_brings_features_nearer_and_leaves_other_data_alone(
    pool: ClipPool, made: Any
) -> None:
    import json

    facts = json.loads((made["surgery"] / "config.json").read_text())["facts"]
    for before, after in facts["distance"].values():
        assert after < before
    other = random_dataset(("ant", "two", "fox"), seed=9)
    torch.testing.assert_close(
        logits(made["surgery"], other), logits(made["surgery"] / "base", other)
    )
    own = pool.tasks["ants"]
    assert not torch.allclose(logits(made["surgery"], own), logits(made["surgery"] / "base", own))
    by_name = logits(made["surgery"], other, task="ants")
    assert not torch.allclose(by_name, logits(made["surgery"], other))


def test_one_model_with_a_head_per_task(tmp_path: Path, pico_vit: Path) -> None:
    """Members with different classes: the module keeps both heads and picks by the classes."""
    from stockpot.models.huggingface import new_huggingface

    first = stockpot.load_model(pico_vit)
    sizes = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 32}
    names = ("x", "y", "z")
    second = new_huggingface("vit", classes=names, preprocess=first.preprocess, seed=1, **sizes)
    third = new_huggingface("vit", classes=CLASSES, preprocess=first.preprocess, seed=2, **sizes)
    members = {"a": pico_vit, "b": second.save(tmp_path / "b")}
    tasks = {"a": random_dataset(CLASSES, seed=1), "b": random_dataset(names, seed=2)}
    out = fuse(
        "wemoe", members, base=third.save(tmp_path / "base"), tasks=tasks, steps=1, head="first",
        out=tmp_path / "out",
    )  # fmt: skip
    heads = {"a": first.network.model.classifier, "b": second.network.model.classifier}
    for name, data in tasks.items():
        model = stockpot.load_model(out, classes=data.classes)
        assert model.classes == data.classes
        assert logits(out, data).shape == (len(data), len(data.classes))
        assert torch.equal(model.network.inner.model.classifier.weight, heads[name].weight)


def test_errors(pool: ClipPool, made: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Copy its folder"):
        stockpot.load_model(made["smile"], classes=("a", "b")).save(tmp_path / "x")
    with pytest.raises(BadParameterError, match="no task 'birds'"):
        stockpot.load_model(made["surgery"], classes=("a", "b"), task="birds")
    from dual_encoders import PLAIN
    from stockpot.models.huggingface import new_huggingface

    sizes = {"embedding_size": 4, "hidden_sizes": [4, 4], "depths": [1, 1]}
    nets = [
        new_huggingface("resnet", classes=CLASSES, preprocess=PLAIN, seed=seed, **sizes).save(
            tmp_path / f"net{seed}"
        )
        for seed in range(3)
    ]
    data = random_dataset(CLASSES)
    with pytest.raises(BadCheckpointError, match="MLP blocks"):
        fuse("wemoe", nets[1:], base=nets[0], tasks=[data] * 2, out=tmp_path / "y", steps=1)
    with pytest.raises(BadCheckpointError, match="exists already"):
        make("smile", pool, made["smile"])
