"""The section that sets clean accuracy against accuracy under attack."""

from __future__ import annotations

from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.measure.run import measure
from stockpot.report.page import render
from stockpot.report.sections.robustness import radius_curves, robust_sections


def attacked(models: dict, **params: object) -> list:
    return measure(models, {"adversarial": {"steps": 2, **params}}, data=make_dataset())


def test_models_under_the_same_attack_share_a_chart() -> None:
    models = {"one": make_classifier(ReadsLabel(4)), "two": make_classifier(ReadsLabel(4))}
    results = attacked(models, norms="linf", eps="1/255")
    (section,) = robust_sections(results)
    assert section.threat == "linf 1/255"
    assert section.n == 40
    assert [row.name for row in section.rows] == ["one", "two"]
    assert section.rows[0].clean.startswith("100.0 %")
    assert section.rows[0].robust.startswith("100.0 %")  # its levels are forty apart
    assert "Clean and under attack" in render(results, title="t")
    # Another radius is another chart, and one model alone makes none.
    more = results + attacked({"one": models["one"]}, norms="linf", eps="2/255")
    assert len(robust_sections(more)) == 1


def test_several_norms_show_their_union() -> None:
    models = {"one": make_classifier(ReadsLabel(4)), "two": make_classifier(ReadsLabel(4))}
    (section,) = robust_sections(attacked(models, norms="linf,l2", eps="1/255,0.1"))
    assert section.threat == "the union of linf 1/255 | l2 0.1"


def test_a_page_without_attacks_has_no_such_section() -> None:
    page = render(measure({"one": make_classifier(ReadsLabel(4))}, "clean", data=make_dataset()),
                  title="t")  # fmt: skip
    assert "under attack" not in page.lower()


def test_radii_of_one_norm_make_a_curve() -> None:
    model = {"one": make_classifier(ReadsLabel(4))}
    near, far = (attacked(model, norms="linf", eps=eps) for eps in ("1/255", "40/255"))
    assert not radius_curves(near)
    (curve,) = radius_curves([*near, *far])
    assert curve.title == "toy, accuracy over the radius in linf"
    # Levels lie forty apart: a radius of one costs nothing, and zero is the image as it is.
    reached = f"{100 * far[0].score('robust_accuracy').value:.1f} %"
    for x, y in ((0, "100.0 %"), (1 / 255, "100.0 %"), (40 / 255, reached)):
        assert f"linf {x:.4g}: {y}" in curve.chart
