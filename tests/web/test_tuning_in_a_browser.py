"""The page of a search: the front, every trial, and the command that makes each of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from browsing import no_overflow, violations
from stockpot.report.tuned import write_tune_page
from stockpot.results.tuning import TunedObjective, TunedScore, TunedTrial, TuneResult
from stockpot.tune.summary import fuse_command, with_choice

MEMBERS = {"photos": "runs/photos", "<b>drawings": "runs/my drawings"}


def search() -> TuneResult:
    """Thirty trials of two methods; what is better in one objective is worse in the other."""
    draws = np.random.default_rng(0)
    trials = []
    for number in range(30):
        scale = round(float(draws.uniform(0.1, 0.9)), 4)
        method = ("ties", "dare")[number % 2]
        params = {"scale": {"*attn*": scale, "*": 0.5}}
        found = {"clean": 0.4 + 0.3 * scale - draws.uniform(0, 0.1), "calibration": scale**2}
        trials.append(TunedTrial(
            number=number, state="pruned" if number == 7 else "complete", method=method,
            params=params, values={} if number == 7 else found, seconds=1.5,
            command=fuse_command(method, params, MEMBERS, "clip-base", named=True),
        ))  # fmt: skip
    score = TunedScore(value=0.58, low=0.57, high=0.59, n=200, tasks=[0.58], default=0.56,
                       gain=0.02, gain_low=0.01, gain_high=0.03)  # fmt: skip
    result = TuneResult(
        methods=["ties", "dare"], members=MEMBERS, base="clip-base", data=["photos:val"],
        images=200, objectives=[TunedObjective(name="clean"),
                                TunedObjective(name="calibration", higher=False)],
        knobs={"ties.scale": "0.1:0.9"}, sampler="tpe", prune="none", seed=0, wanted=30,
        finished=True, trials=trials, test={"clean": score}, test_looks=1,
    )  # fmt: skip
    return with_choice(result, "", 2)


def test_every_point_has_its_command_on_any_screen(visit, tmp_path: Path) -> None:
    result = search()
    file = write_tune_page(result, tmp_path / "tune.html")
    page = visit(file, width=1280)
    assert page.locator("#chart circle").count() == 29, "all trials that were judged in full"
    titles = page.locator("#chart circle title").all_text_contents()
    assert {int(title.split(":")[0].split()[1]) for title in titles} == set(range(30)) - {7}
    rows = page.locator("#front tbody tr")
    assert rows.count() == len(result.front) > 3
    assert page.locator("#chosen code").inner_text() == result.trial(result.chosen).command
    # Opened by key, a row shows its own command and no other.
    for place in (0, rows.count() - 1):
        row = rows.nth(place)
        number = int(row.locator("th").inner_text())
        row.locator("summary").press("Enter")
        assert row.locator("code").inner_text() == result.trial(number).command
    assert not violations(page)
    assert no_overflow(page)
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 800})
    assert no_overflow(page)
    assert not violations(page)
