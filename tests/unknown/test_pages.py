"""Tables and curves of these measures, on the terminal and on the page."""

from __future__ import annotations

import stockpot
from pico import make_classifier, make_dataset
from stockpot.cli.scores import print_scores
from stockpot.report.page import render
from stockpot.results.score_tables import detection_tables
from unknown.test_ood import Headed, foreign


def test_what_is_not_known_is_shown(capsys) -> None:
    data = make_dataset(40)
    asked = {
        "ood": {"far": {"dark": foreign(), "light": foreign(20, 150)}, "detectors": "msp,ash_s"},
        "calibration": {"held_out": "content"},
        "selective": {},
        "certified": {"n": 20, "n0": 2, "sigma": 0.1},
    }
    results = stockpot.measure({"net": make_classifier(Headed())}, asked, data=data, device="cpu")
    (table,) = detection_tables(results)
    assert table.sets == ["dark", "light", "far mean"]
    assert [name for name, _ in table.rows] == ["msp", "ash_s"]
    auroc, fpr = table.rows[1][1][0]
    assert (auroc, fpr) == (
        results[0].score("auroc", detector="ash_s", set="dark"),
        results[0].score("fpr95", detector="ash_s", set="dark"),
    )
    print_scores(results)
    shown = capsys.readouterr().out
    assert "FPR at 95 % TPR" in shown
    assert f"{100 * auroc.value:.1f} ({100 * fpr.value:.1f})" in shown
    page = render(results, title="Unknowns")
    section = page[page.index('<section id="unknowns">') :]
    section = section[: section.index("</section>")]
    for words in ("Reliability", "surest", "Certified l2 radius", "far mean", "calibrated"):
        assert words in section
    assert section.count("<svg") == 3
