"""Projections and hyperplane steps against a general solver and the conditions of optimality."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, linprog, minimize

from stockpot.attack.hyperplane import step_to_plane
from stockpot.attack.projection import norm_of, project, project_l1


def brute_force_l1(origin: np.ndarray, delta: np.ndarray, eps: float) -> np.ndarray:
    """The nearest feasible change by a general quadratic solver (split into two signs)."""
    d = len(origin)
    goal = lambda z: ((z[:d] - z[d:] - delta) ** 2).sum()  # noqa: E731
    slope = lambda z: np.concatenate([r := 2 * (z[:d] - z[d:] - delta), -r])  # noqa: E731
    found = minimize(
        goal,
        np.zeros(2 * d),
        jac=slope,
        method="SLSQP",
        bounds=Bounds(np.zeros(2 * d), np.concatenate([1 - origin, origin])),
        constraints=[{"type": "ineq", "fun": lambda z: eps - z.sum()}],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    return found.x[:d] - found.x[d:]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("eps", [0.3, 1.0, 2.5])
def test_l1_projection_is_optimal(seed: int, eps: float) -> None:
    numbers = np.random.default_rng(seed)
    origin, delta = numbers.random(6), numbers.normal(0, 0.8, 6)
    ours = project_l1(torch.tensor(origin)[None], torch.tensor(delta)[None], eps)[0].numpy()
    best = brute_force_l1(origin, delta, eps)
    assert np.abs(ours).sum() <= eps + 1e-9
    assert ((origin + ours >= -1e-12) & (origin + ours <= 1 + 1e-12)).all()
    assert ((ours - delta) ** 2).sum() <= ((best - delta) ** 2).sum() + 1e-7
    np.testing.assert_allclose(ours, best, atol=2e-4)


@given(st.integers(0, 10_000), st.sampled_from([1e-3, 0.7, 5.0, 40.0]))
@settings(max_examples=60, deadline=None)
def test_l1_projection_obeys_the_optimality_conditions(seed: int, eps: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    origin = torch.rand(3, 200, generator=generator, dtype=torch.float64)
    delta = torch.randn(3, 200, generator=generator, dtype=torch.float64)
    found = project_l1(origin, delta, eps)
    room = torch.where(delta > 0, 1 - origin, origin)
    assert (found.abs().sum(1) <= eps * (1 + 1e-9)).all()
    assert (found.abs() <= room + 1e-12).all()
    for row in range(3):
        # One multiplier for all free coordinates; zero ones need less, full ones allow more.
        size, own, space = delta[row].abs(), found[row].abs(), room[row]
        free = (own > 1e-9) & (own < space - 1e-9)
        level = (size - own)[free]
        if len(level) and float(found[row].abs().sum()) > eps * (1 - 1e-9):
            t = float(level.mean())
            torch.testing.assert_close(level, torch.full_like(level, t))
            assert (size[own <= 1e-9] <= t + 1e-6).logical_or(space[own <= 1e-9] <= 1e-9).all()
            assert ((size - own)[own >= space - 1e-9] >= t - 1e-6).all()


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_projections_stay_inside_and_keep_inner_points(norm: str) -> None:
    generator = torch.Generator().manual_seed(0)
    origin = torch.rand(8, 3, 5, 5, generator=generator)
    point = origin + torch.randn(origin.shape, generator=generator)
    inside = project(norm, origin, point, 0.7)
    assert float(norm_of(norm, inside - origin).max()) <= 0.7 + 1e-5
    assert 0 <= float(inside.min()) <= float(inside.max()) <= 1
    torch.testing.assert_close(project(norm, origin, inside, 0.7), inside, atol=1e-5, rtol=0)
    assert torch.equal(project(norm, origin, origin, 0.0), origin)


def solve_plane(norm: str, x: np.ndarray, w: np.ndarray, b: float) -> float:
    """The least norm of a change that reaches the plane inside the box, by general solvers."""
    d = len(x)
    if norm == "l2":
        found = minimize(
            lambda z: (z**2).sum(), np.zeros(d), jac=lambda z: 2 * z, method="SLSQP",
            bounds=Bounds(-x, 1 - x), constraints=[LinearConstraint(w, b - w @ x, b - w @ x)],
            options={"maxiter": 1000, "ftol": 1e-14},
        )  # fmt: skip
        return float(np.sqrt(found.fun))
    if norm == "linf":  # variables: change, bound
        cost = np.r_[np.zeros(d), 1.0]
        rows = np.block([[np.eye(d), -np.ones((d, 1))], [-np.eye(d), -np.ones((d, 1))]])
        equal = np.r_[w, 0.0][None]
        limits = [(-v, 1 - v) for v in x] + [(0, None)]
    else:  # variables: upward and downward parts
        cost = np.ones(2 * d)
        rows, equal = None, np.r_[w, -w][None]
        limits = [(0, 1 - v) for v in x] + [(0, v) for v in x]
    upper = None if rows is None else np.zeros(2 * d)
    found = linprog(cost, A_ub=rows, b_ub=upper, A_eq=equal, b_eq=[b - w @ x], bounds=limits)
    return float(found.fun)


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("seed", range(8))
def test_steps_to_a_plane_are_the_shortest(norm: str, seed: int) -> None:
    numbers = np.random.default_rng(seed)
    x, w = numbers.random(7), numbers.normal(size=7)
    b = float(w @ numbers.random(7))  # some valid point lies on the plane
    tensors = [torch.tensor(value)[None] for value in (x, w)]
    step = step_to_plane(norm, *tensors, torch.tensor([b]))[0]
    assert float(tensors[1][0] @ (tensors[0][0] + step)) == pytest.approx(b, abs=1e-5)
    moved = tensors[0][0] + step
    assert -1e-9 <= float(moved.min()) <= float(moved.max()) <= 1 + 1e-9
    length = float(norm_of(norm, step[None]))
    assert length == pytest.approx(solve_plane(norm, x, w, b), abs=1e-4)


def test_an_unreachable_plane_gives_the_nearest_corner() -> None:
    x, w = torch.tensor([[0.2, 0.6]]), torch.tensor([[1.0, -2.0]])
    for norm in ("linf", "l2", "l1"):
        step = step_to_plane(norm, x, w, torch.tensor([9.0]))
        torch.testing.assert_close(x + step, torch.tensor([[1.0, 0.0]]))
