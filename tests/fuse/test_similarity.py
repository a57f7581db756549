"""Similarity reports against plain cosines."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from stockpot.fuse.similarity import similarity


def test_cosines_norms_and_signs() -> None:
    generator = torch.Generator().manual_seed(0)
    base = {
        "a": torch.randn(600, 500, generator=generator),
        "b": torch.randn(9, generator=generator),
    }
    members = {
        name: {k: v + torch.randn(v.shape, generator=generator) for k, v in base.items()}
        for name in ("x", "y", "z")
    }
    members["z"] = {k: 2 * base[k] - members["x"][k] for k in base}
    report = similarity(base, members)
    change = torch.stack(
        [torch.cat([(m[k] - base[k]).flatten() for k in base]) for m in members.values()]
    ).double()
    unit = change / change.norm(dim=1, keepdim=True)
    torch.testing.assert_close(report.cosine, unit @ unit.T, rtol=0, atol=1e-7)
    torch.testing.assert_close(report.norms, change.norm(dim=1), rtol=1e-9, atol=0)
    agree = (change[0].sign() == change[1].sign()).double().mean()
    torch.testing.assert_close(report.sign_agreement[0, 1], agree, rtol=1e-6, atol=0)
    assert report.sign_agreement[0, 2] < 0.001
    part = torch.stack([(m["b"] - base["b"]) for m in members.values()]).double()
    want = torch.cosine_similarity(part[0], part[1], dim=0)
    torch.testing.assert_close(report.layers["b"][0, 1], want)
    assert list(report.profile) == ["a", "b"]


def test_a_member_that_changed_nothing_has_no_direction() -> None:
    base = {"w": torch.ones(4)}
    report = similarity(base, [base, {"w": torch.zeros(4)}])
    assert torch.isfinite(report.cosine).all()
    assert report.cosine[0, 1] == 0
    assert report.norms.tolist() == [0.0, 2.0]


def test_csv_and_picture(tmp_path: Path) -> None:
    base = {"w": torch.zeros(3)}
    report = similarity(
        base, {"one": {"w": torch.tensor([1.0, 0, 0])}, "<two>": {"w": torch.tensor([1.0, 1, 0])}}
    )
    rows = list(csv.reader(io.StringIO(report.to_csv(tmp_path / "c.csv"))))
    assert rows[0] == ["", "one", "<two>"]
    assert float(rows[1][2]) == float(rows[2][1]) == pytest.approx(0.5**0.5, abs=1e-12)
    assert (tmp_path / "c.csv").read_text() == report.to_csv()
    picture = ElementTree.fromstring(report.to_svg(tmp_path / "c.svg"))
    texts = [node.text for node in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("<two>") == 2
    assert texts.count("0.71") == 2
    assert report.profile_csv().startswith("tensor,mean_cosine\nw,")
