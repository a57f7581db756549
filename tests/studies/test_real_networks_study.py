"""Real networks: weights in their places, and verdicts on answers that are known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from stockpot.corrupt import BENCHMARK
from stockpot.measure.mce import named_baseline, score

Part = Callable[[str, str], Any]


def test_mobilenet_is_what_torchvision_computes(part: Part) -> None:
    """Against the network of arXiv:1801.04381, table 2, with torchvision's names of weights."""

    def layer(
        before: int, after: int, size: int, stride: int = 1, groups: int = 1
    ) -> nn.Sequential:
        conv = nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU6())

    class Block(nn.Module):
        def __init__(self, before: int, after: int, stride: int, wider: int) -> None:
            super().__init__()
            inner = before * wider
            first = [layer(before, inner, 1)] if wider > 1 else []
            last = [*layer(inner, after, 1)][:2]
            self.conv = nn.Sequential(*first, layer(inner, inner, 3, stride, inner), *last)
            self.adds = stride == 1 and before == after

        def forward(self, pixels: Tensor) -> Tensor:
            found: Tensor = self.conv(pixels)
            return pixels + found if self.adds else found

    features, before = [layer(3, 32, 3, 2)], 32
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
             (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip
    torch.manual_seed(0)
    for wider, after, count, stride in table:
        for number in range(count):
            features.append(Block(before, after, stride if number == 0 else 1, wider))  # type: ignore[arg-type]
            before = after
    features.append(layer(before, 1280, 1))
    net = nn.Module()
    net.features, net.classifier = (
        nn.Sequential(*features),
        nn.Sequential(nn.Dropout(), nn.Linear(1280, 1000)),
    )
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)  # type: ignore[arg-type]
            nn.init.uniform_(module.running_var, 0.0005, 0.002)  # type: ignore[arg-type]
            nn.init.uniform_(module.weight, 0.05, 0.1)
    model = part("real_networks", "study").mobilenet(net.state_dict()).eval()
    pixels = torch.randn(1, 3, 96, 96, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = net.classifier(net.eval().features(pixels).mean(dim=(2, 3)))
        torch.testing.assert_close(model(pixels).logits, expected, rtol=1e-4, atol=1e-4)


def test_no_picture_is_drawn_twice_and_severities_are_even(part: Part) -> None:
    study = part("real_networks", "study")
    drawn = list(study.rounds(1000))
    pictures = [row for _, _, rows in drawn for row in rows]
    assert len(pictures) == len(set(pictures)) == 880
    assert [severity for _, severity, _ in drawn] == [1, 2, 3, 4, 5] * 22


def test_corruption_error_is_the_benchmarks(part: Part) -> None:
    """Each picture at one severity gives the mCE of as many pictures at all of them."""
    tables = part("real_networks", "tables")
    draw = np.random.default_rng(0)
    chance = np.linspace(0.2, 0.9, 16)
    rows = [
        {"severity": severity, **{name: "".join("x." [int(draw.random() < p)] for p in chance)
                                  for name in tables.NETWORKS}}
        for severity in (1, 2, 3, 4, 5) for _ in range(20)
    ]  # fmt: skip
    found = tables.corruption_of(rows)
    for name in tables.NETWORKS:
        wrong = np.array([[mark == "." for mark in row[name]] for row in rows]).reshape(5, 20, 16)
        errors = {corruption: {float(s + 1): float(wrong[s, :, n + 1].mean()) for s in range(5)}
                  for n, corruption in enumerate(BENCHMARK)}  # fmt: skip
        known = score(errors, float(wrong[:, :, 0].mean()), named_baseline("alexnet-severities"))
        assert found[name][0].value == pytest.approx(known.mce)
        assert found[name][1].value == pytest.approx(known.relative_mce)
        low, high = found[name][0].interval()[1:]
        assert low < known.mce < high


def test_shape_bias_counts_conflicts_and_draws_shapes_and_textures(part: Part) -> None:
    tables = part("real_networks", "tables")
    kinds = ("bear", "boat", "car", "cat")
    names = [f"{s}{n}-{t}{m}" for s, t in product(kinds, kinds) for n in (1, 2) for m in (1, 2)]
    cues = tables.Cues(names)
    texture, shape = cues.texture, cues.shape
    # A bear is told by its shape; the others by texture, but a car made of boat is a clock.
    said = np.where(shape == "bear", shape, texture)
    said = np.where((shape == "car") & (texture == "boat"), "clock", said)
    found = cues.bias(said)
    assert found.value == pytest.approx(12 / (48 - 4))  # pictures of equal cues do not count
    # Whether a bear is drawn decides: two of eight shapes, not 12 of 44 pictures.
    singly = np.sqrt(found.value * (1 - found.value) / 44)
    assert np.nanstd(found.draws) > 1.5 * singly
    assert cues.share(said == said).interval() == (1, 1, 1)


def test_verdicts_follow_the_plan(part: Part) -> None:
    tables = part("real_networks", "tables")

    def drawn(value: float, spread: float = 0.01) -> Any:
        return tables.Drawn(value, value + spread * np.linspace(-2, 2, 4001))

    assert tables.each_above([drawn(0.1), drawn(0.03)], 0) == "held"
    assert tables.each_above([drawn(0.1), drawn(0.01)], 0) == "not told apart"
    assert tables.each_above([drawn(0.1), drawn(-0.03)], 0) == "did not hold"
    assert tables.each_within([drawn(0.01), drawn(-0.01)], 0.05) == "held"
    assert tables.each_within([drawn(0.01), drawn(0.04)], 0.05) == "not told apart"
    assert tables.each_within([drawn(0.01), drawn(-0.08)], 0.05) == "did not hold"
    assert tables.each_within([drawn(0, 1)], 0.05) == "not told apart"


def test_attacks_meet_the_pictures_that_were_corrupted(part: Part) -> None:
    attacks = part("real_networks", "attacks")
    some = attacks.attack_rounds(1000)
    assert [len(rows) for rows in some] == [40] * 22
    for number, rows in enumerate(some):
        own = [row for n, _, pictures in attacks.rounds(1000) if n == number for row in pictures]
        assert set(rows) == set(own)


def test_what_is_kept_and_in_which_order(part: Part) -> None:
    """Networks that lose known shares, on pictures of which some are wrong to begin with."""
    kept = part("real_networks", "kept")
    places = [(n, s, row) for n, s, some in part("real_networks", "study").rounds(1000)
              for row in some][:160]  # fmt: skip
    numbers = [row for _, _, row in places]
    stands = dict(zip(kept.NETWORKS, (10, 30, 50, 70, 90), strict=True))
    # 150 of 160 are right as they are; at the first radius so many of these, at the next none.
    rows: list[dict[str, Any]] = []
    for place, number in enumerate(numbers):
        marks = {n: "x" + "x."[place >= k] + "...." for n, k in stands.items()}
        rows.append(
            {"picture": number, **(marks if place < 150 else dict.fromkeys(stands, "." * 6))}
        )
    hurt = [{"round": number, "severity": s,
             **{n: "x" + "x" * (k // 10) + "." * (15 - k // 10) for n, k in stands.items()}}
            for number, s, _ in places]  # fmt: skip
    rates = kept.kept(kept.flags_of(rows))
    for name, count in stands.items():
        assert rates["0.25/255"][name].value == pytest.approx(count / 150)
        low, high = rates["0.25/255"][name].interval()[1:]
        wanted = 1.96 * np.sqrt(count / 150 * (1 - count / 150) / 150)
        assert (high - low) / 2 == pytest.approx(wanted, rel=0.1)
        assert rates["0.5/255"][name].interval() == (0, 0, 0)
    assert kept.keeps_most(rates["0.25/255"]) == "EfficientNet-Lite2"
    assert kept.keeps_most(rates["0.5/255"]) == "not told apart"
    told = {claim.split()[0]: verdict for claim, _, verdict in kept.claims(rows, hurt)}
    assert told == {"12": "held", "13": "held", "14": "held", "15": "held"}
    # The other way round under corruption, and pictures that were not corrupted do not matter.
    turned = [row | dict(zip(kept.NETWORKS, [row[n] for n in reversed(kept.NETWORKS)], strict=True))
              for row in hurt]  # fmt: skip
    more = [*rows, {**rows[0], "picture": 10**6}]
    order = kept.agreements(more, turned, ["0.25/255"])["0.25/255"]
    assert (order.correlation, order.n, order.opposite) == (pytest.approx(-1), 160, order.decided)
    assert kept.claims(more, turned)[-1][-1] == "did not hold"
    # Of a network that was not attacked nothing is said, and nothing of all networks but that one
    # of them did not do as was claimed.
    fewer = [{k: v for k, v in row.items() if k != "lite2"} for row in rows]
    said = {claim.split()[0]: verdict for claim, _, verdict in kept.claims(fewer, hurt)}
    assert set(said.values()) == {"not measured"}
    assert set(kept.tables(fewer, hurt)) == {"attacked", "kept"}
    worse = [{**row, "mobilenet_v2": "x" * 6} for row in fewer]
    assert [told for _, _, told in kept.claims(worse, hurt)][:3] == ["did not hold"] * 3


def test_none_of_few_is_not_certainly_none(part: Part) -> None:
    kept = part("real_networks", "kept")
    none, half = np.zeros(20, bool), np.arange(200) % 2 == 0
    assert kept.each_below([none], 0.1) == "not told apart"
    assert kept.each_below([np.zeros(160, bool)] * 5, 0.1) == "held"
    assert kept.each_below([half, none], 0.1) == "did not hold"


def test_defences_meet_pictures_at_the_severity_they_had(part: Part) -> None:
    defences = part("real_networks", "defences")
    shown = list(defences.design(1000))
    pictures = [picture for one in shown for picture in one.pictures]
    assert len(pictures) == len(set(pictures)) == 525
    for runs, first, end in (((*defences.FIRST, *defences.SECOND), 0, 4), (defences.THIRD, 6, 22)):
        drawn = defences.rounds(1000)
        corrupted = {(s, row) for n, s, rows in drawn if first <= n < end for row in rows}
        own = [one for one in shown if one.round in runs]
        assert {(one.severity, picture) for one in own for picture in one.pictures} <= corrupted
    for number in defences.ROUNDS:
        own = [one for one in shown if one.round == number]
        assert sorted(name for one in own for name in one.corruptions) == sorted(BENCHMARK)
    met = {(one.severity, name) for one in second_run(part) for name in one.corruptions}
    assert len(met) == 75


def second_run(part: Part) -> list[Any]:
    """What is shown in five rounds: each severity meets each corruption once."""
    defences = part("real_networks", "defences")
    return [one for one in defences.design(1000) if one.round in defences.SECOND]


def defended_rows(part: Part, right: Callable[[str, str, int, int], bool]) -> list[dict[str, Any]]:
    """Answers by `right(defence, network, picture, condition)`; condition 0 is the picture."""
    defences = part("real_networks", "defences")
    return [
        {"round": one.round, "severity": one.severity, "group": one.group, "picture": picture,
         "defence": name,
         **{n: "".join(".x"[right(name, n, picture, k)] for k in range(4))
            if n in defences.networks_behind(name) else None for n in defences.NETWORKS}}
        for one in second_run(part) for picture in one.pictures for name in defences.DEFENCES
    ]  # fmt: skip


def test_mce_behind_a_defence_is_the_benchmarks(part: Part) -> None:
    """With each severity on each corruption, the mean of weighed errors is mCE itself."""
    draw = np.random.default_rng(1)
    table = draw.random((1000, 4)) < 0.5
    rows = defended_rows(part, lambda _d, _n, picture, k: bool(table[picture, k]))
    helped = part("real_networks", "helped")
    design = second_run(part)
    errors: dict[str, dict[float, float]] = {name: {} for name in BENCHMARK}
    for one in design:
        for k, name in enumerate(one.corruptions, 1):
            wrong = [not table[picture, k] for picture in one.pictures]
            errors[name][float(one.severity)] = float(np.mean(wrong))
    known = score(errors, 0.5, named_baseline("alexnet-severities"))
    answers = helped.Answers(rows)
    assert answers.mce("none", "lite1").value == pytest.approx(known.mce)
    # Nothing changed in 375 answers: one in a hundred may, by Wilson's interval.
    value, low, high = answers.worse("nlm", ["lite1"]).interval()
    assert (value, low) == (0, pytest.approx(-high))
    assert 0.01 < high < 0.015


def test_defences_that_help_and_harm_are_told(part: Part) -> None:
    """Non-local means lose every third picture, CLAHE gains it; the others do nothing."""

    def right(defence: str, _network: str, picture: int, k: int) -> bool:
        third, odd = picture % 3 == 0, (picture + k) % 2 == 1
        if defence == "nlm":
            return odd and not third
        return odd or third if defence == "clahe" else odd

    rows = defended_rows(part, right)
    helped = part("real_networks", "helped")
    told = {claim.split()[0]: verdict for claim, _, verdict in helped.claims(rows)}
    assert told == {"16": "held", "17": "held", "18": "held", "19": "not told apart",
                    "20": "did not hold", "21": "did not hold"}  # fmt: skip
    made = helped.tables(rows)
    assert "Pictures: 125" in made["defended"]
    first = made["defended"].splitlines()[2].split("|")
    assert [cell.split()[-1] for cell in first[3:5]] == ["better", "worse"]
    assert "| - |" in made["defended"].splitlines()[5]  # no ten crops for EfficientNet-Lite1


def test_what_stands_against_a_search_is_told(part: Part) -> None:
    """Networks that lose known shares of the validated pictures that they have right."""
    moved = part("real_networks", "moved")
    study = part("real_networks", "study")
    places = [(n, s, row) for n, s, some in study.rounds(1000) for row in some][:160]
    numbers = [row for _, _, row in places]
    falls = dict(zip(study.NETWORKS, (90, 70, 50, 30, 10), strict=True))
    rows: list[dict[str, Any]] = []
    for place, number in enumerate(numbers):
        # Of 160 pictures 150 are validated, of these 140 right.
        start = "xxx" if place < 140 else ".xx" if place < 150 else "x.."
        marks = {n: f"{start}x{'.x'[count <= place < 140]}" for n, count in falls.items()}
        rows.append({"picture": number, **marks})
    hurt = [{"round": number, "severity": severity,
             **{n: "x" * (16 - k // 10) + "." * (k // 10) for n, k in falls.items()}}
            for number, severity, _ in places]  # fmt: skip
    found = moved.matched(moved.flags_of(rows))
    for name, count in falls.items():
        sa, pa, fmr = (one.value for one in found[name])
        assert (sa, pa) == (pytest.approx(140 / 150), pytest.approx((140 - count) / 150))
        assert fmr == pytest.approx((140 - count) / 140)
    told = {claim.split()[0]: verdict for claim, _, verdict in moved.claims(rows, hurt)}
    assert told == {"22": "held", "23": "held", "24": "did not hold"}
    turned = [row | dict(zip(falls, [row[n] for n in reversed(falls)], strict=True))
              for row in hurt]  # fmt: skip
    assert moved.claims(rows, turned)[-1][-1] == "held"
    fewer = [{k: v for k, v in row.items() if k != "lite2"} for row in rows]
    said = {claim.split()[0]: verdict for claim, _, verdict in moved.claims(fewer, hurt)}
    assert set(said.values()) == {"not measured"}
    signs = [{"network": n, "again": "yes" if n == "lite0" else "no", "fell": 2} for n in falls]
    made = moved.tables(rows, signs)["dynamic"]
    assert "Pictures: 160" in made
    assert [row.split("|")[-2].strip() for row in made.splitlines()[2:7]] == [
        "-",
        "-",
        "2",
        "-",
        "-",
    ]


def test_no_network_judges_itself(part: Part) -> None:
    dynamic = part("real_networks", "dynamic")
    assert set(dynamic.ORACLES) == set(dynamic.NETWORKS)
    for judged, oracle in dynamic.ORACLES.items():
        assert judged != oracle
        assert not (judged.startswith("lite") and oracle.startswith("lite"))
