"""Laws that every seasoning method obeys; a new method needs a row in `QUICK`."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from season.toys import linear_member, norm_member, toy_images
from stockpot.datasets.dataset import Dataset
from stockpot.season import seasoners
from stockpot.season.run import season

# Parameters that make each method quick.
QUICK = {
    "uniform": {},
    "greedy": {},
    "grid": {"step": 0.2},
    "wise_ft": {"alphas": (-0.2, 0.0, 0.5, 1.0, 1.2)},
    "learned": {"steps": 5},
    "gradient": {"steps": 5, "scope": "block"},
    "racing": {},
    "label_free": {"step": 0.5, "low": -0.5, "high": 1.5},
    "coda": {"labels": 3},
}
MEMBERS = {"linear": linear_member, "batch-norm": norm_member}
CASES = [(name, kind) for name in QUICK for kind in MEMBERS]


def family(name: str, kind: str) -> list:
    return [MEMBERS[kind](seed) for seed in ((1, 2) if name == "wise_ft" else (1, 2, 3))]


def data(members: list, n: int = 90) -> Dataset:
    # The images are named by the last member, so that there is something to find.
    return toy_images(n, members[-1], noise=0.2)


def run(name: str, members: list, images: Dataset, **options):
    source = toy_images(40, members[0], noise=0.1)
    params = {**QUICK[name], **options}
    return season(name, members, images, source=source, shots=30, batch_size=16, **params)


def poisoned(images: Dataset, rows: tuple[int, ...]) -> Dataset:
    labels = images.labels.clone()
    labels[list(rows)] = (labels[list(rows)] + 1) % 4
    return replace(images, labels=labels)


def test_every_method_has_a_row() -> None:
    assert set(QUICK) == set(seasoners.names())


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_seed_fixes_the_weights_and_they_sum_to_one(name: str, kind: str) -> None:
    members = family(name, kind)
    first = run(name, members, data(members), seed=3)
    state = torch.get_rng_state()
    second = run(name, members, data(members), seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.weights == second.weights
    assert sum(first.weights) == pytest.approx(1, abs=1e-6)
    for rows in (first.tensor_weights or {}).values():
        assert float(rows.sum()) == pytest.approx(1, abs=1e-6)
    assert first.accuracy == second.accuracy
    assert first.accuracy.n == len(first.held_out) == 60
    again = second.model.state_dict()
    for key, tensor in first.model.state_dict().items():
        assert torch.equal(tensor, again[key])
        assert bool(torch.isfinite(tensor).all())


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_choice_never_sees_what_it_is_scored_on(name: str, kind: str) -> None:
    members = family(name, kind)
    images = data(members)
    honest = run(name, members, images)
    assert not set(honest.selected_on) & set(honest.held_out)
    misled = run(name, members, poisoned(images, honest.held_out))
    assert misled.weights == honest.weights
    # The same pictures are all wrong or right the other way round: the labels did change.
    assert misled.accuracy.value != honest.accuracy.value


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_equal_members_come_back_unchanged(name: str, kind: str) -> None:
    one = MEMBERS[kind](5)
    count = len(family(name, kind))
    params = {"alphas": (0.0, 0.3, 1.0)} if name == "wise_ft" else {}
    # Statistics estimated anew, as they would be on the source, differ from the members'.
    soup = run(name, [one] * count, data([one]), bn="mix", **params).model.state_dict()
    for key, tensor in soup.items():
        assert torch.equal(tensor, one.state_dict()[key]), key


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_wise_ft_of_equal_members_and_its_ends(alpha: float) -> None:
    members = [norm_member(1), norm_member(2)]
    images = data(members)
    same = season("wise_ft", [members[0]] * 2, images, shots=0, alphas=(alpha,)).model
    assert all(
        torch.equal(a, b)
        for a, b in zip(same.state_dict().values(), members[0].state_dict().values(), strict=True)
    )
    if alpha in (0.0, 1.0):
        end = season("wise_ft", members, images, shots=0, alphas=(alpha,)).model
        want = members[int(alpha)].state_dict()
        assert all(torch.equal(v, want[k]) for k, v in end.state_dict().items())


@pytest.mark.parametrize("criterion", ["entropy", "atc", "agreement"])
def test_label_free_reads_no_label_of_the_target(criterion: str) -> None:
    members = family("label_free", "linear")
    images = data(members)
    honest = run("label_free", members, images, criterion=criterion)
    blind = run("label_free", members, poisoned(images, tuple(range(90))), criterion=criterion)
    assert blind.weights == honest.weights


def test_greedy_is_monotone_and_no_worse_than_the_best_member() -> None:
    members = [linear_member(seed) for seed in range(1, 6)]
    images = data(members)
    result = run("greedy", members, images)
    trace = result.record.details["notes"]["accuracy"]
    assert trace == sorted(trace)
    alone = season("grid", members[:1], images, shots=30, low=0.0, high=1.0, step=1.0)
    assert trace[0] >= float(alone.matrix.accuracy()[0])
    seen = images.take(result.selected_on)
    for member in members:
        with torch.inference_mode():
            right = member.eval()(seen.images.pixels).argmax(dim=1) == seen.labels
        assert trace[-1] >= float(right.double().mean())


def test_racing_is_near_the_grid_for_a_share_of_its_cost() -> None:
    members = [linear_member(seed) for seed in (1, 2, 3)]
    teacher = linear_member(4)
    for name, parameter in teacher.named_parameters():
        parameter.data = sum(
            w * dict(m.named_parameters())[name].data
            for w, m in zip((0.8, 0.6, -0.4), members, strict=True)
        )
    images = toy_images(1000, teacher, noise=0.3)
    gaps = []
    for seed in range(5):
        options = {"shots": 600, "seed": seed, "batch_size": 600}
        best = season("grid", members, images, **options).accuracy.value
        raced = season("racing", members, images, **options)
        gaps.append(best - raced.accuracy.value)
        assert raced.record.details["notes"]["share_of_grid"] < 0.2
    assert sum(gaps) / len(gaps) <= 0.005
