"""Shifts: gaps against closed forms, groups by whole names, cues, and ImageNet's conventions."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from imagenet_suite import build, reader, shared_suite
from pico import CLASSES, ReadsLabel, make_classifier, make_dataset
from stockpot.datasets.dataset import Dataset
from stockpot.datasets.load import load_dataset
from stockpot.datasets.natural.classes import (
    categories,
    imagenet_classes,
    imagenet_names,
    imagenet_outputs,
    objectnet_classes,
    subset,
)
from stockpot.errors import BadDataError, BadParameterError, UnknownNameError, UserError
from stockpot.measure import measures
from stockpot.measure.measurement import Context, Measurement
from stockpot.measure.run import measure
from stockpot.measure.shift.shift import Line, fit_line
from stockpot.results.schema import Score
from stockpot.results.several_sets import mean_of_sets, newcombe
from stockpot.score.class_space import match_classes


def score(result: Measurement, metric: str, **condition: object) -> Score:
    found = [
        each
        for each in result.scores
        if each.metric == metric
        and all(each.condition.get(key) == value for key, value in condition.items())
    ]
    assert len(found) == 1, (metric, condition, [each.condition for each in found])
    return found[0]


def mislabelled(n: int, wrong: int) -> Dataset:
    """A toy set on which a perfect reader errs `wrong` times."""
    data = make_dataset(n)
    labels = data.labels.clone()
    labels[:wrong] = (labels[:wrong] + 1) % len(CLASSES)
    return replace(data, labels=labels)


def run(name: str, model: object, data: Dataset, **params: object) -> Measurement:
    result: Measurement = measures.get(name)(model, data, Context(batch_size=16), **params)
    return result


class TestOutside:
    def test_accuracies_gaps_and_the_mean_are_counts(self) -> None:
        outside = {"near": mislabelled(50, 10), "far": mislabelled(40, 30)}
        result = run("shift", make_classifier(ReadsLabel(4)), mislabelled(100, 5), outside=outside)
        assert score(result, "accuracy").value == 0.95
        assert score(result, "outside_accuracy", set="near").value == 0.8
        assert score(result, "outside_accuracy", set="far").value == 0.25
        assert score(result, "gap", set="far").value == pytest.approx(0.7)
        mean = score(result, "mean_outside_accuracy")
        assert mean.value == pytest.approx((0.8 + 0.25) / 2)  # sets count equally, not images
        assert result.outcomes["outside:far"].sum() == 10
        assert result.images == 190

    def test_sets_are_named_as_in_a_recipe(self) -> None:
        outside = {"other icons": {"dataset": "icons", "family": "fluent", "limit": 8}}
        toy = make_classifier(ReadsLabel(4))
        with pytest.raises(BadDataError, match="does not know"):
            run("shift", toy, make_dataset(8), outside=outside)
        with pytest.raises(BadParameterError, match="at least one"):
            run("shift", toy, make_dataset(8))
        with pytest.raises(BadParameterError, match="options with `dataset`"):
            run("shift", toy, make_dataset(8), outside={"x": {"family": "fluent"}})

    def test_effective_robustness_is_the_height_above_the_line(self) -> None:
        line = Line(1.2, -0.3)
        inside = [0.5, 0.7, 0.9]
        outside = [line.expected(value) for value in inside]
        fitted = fit_line(inside, outside)
        assert fitted.slope == pytest.approx(1.2)
        assert fitted.intercept == pytest.approx(-0.3)
        data, other = mislabelled(100, 10), mislabelled(100, 30)
        result = run(
            "shift", make_classifier(ReadsLabel(4)), data, outside={"o": other}, line=(1.2, -0.3)
        )
        logit = math.log(0.9 / 0.1)
        expected = 0.7 - 1 / (1 + math.exp(0.3 - 1.2 * logit))
        assert score(result, "effective_robustness").value == pytest.approx(expected)
        with pytest.raises(BadParameterError, match="two models"):
            fit_line([0.5], [0.4])

    def test_newcombe_interval_is_that_of_his_paper(self) -> None:
        # Newcombe (1998), method 10, first example: 56/70 - 48/80 -> 0.0524 to 0.3339.
        first, second = np.arange(70) < 56, np.arange(80) < 48
        low, high, _ = newcombe(first, second)
        assert (round(low, 4), round(high, 4)) == (0.0524, 0.3339)

    def test_the_mean_of_one_set_has_that_set_s_interval(self) -> None:
        flags = np.arange(40) < 30
        mean, interval = mean_of_sets([flags])
        assert mean == 0.75
        alone = measures.get("clean")(
            make_classifier(ReadsLabel(4)), mislabelled(40, 10), Context()
        )
        wilson = score(alone, "accuracy")
        assert interval.low == pytest.approx(wilson.ci_low)
        assert interval.high == pytest.approx(wilson.ci_high)
        # The same images twice are no further evidence; other images are, by the root of two.
        _, both = mean_of_sets([flags, flags])
        assert both == interval
        other = np.arange(80) % 4 > 0
        _, apart = mean_of_sets([flags, other])
        second = mean_of_sets([other])[1]
        half = math.hypot(interval.high - 0.75, second.high - 0.75) / 2
        assert (apart.high - mean) == pytest.approx(half)


class TestSurface:
    def test_groups_are_whole_names_and_the_gap_is_seen_minus_unseen(self) -> None:
        data = mislabelled(40, 0)
        family = tuple("monkey" if row < 10 else "monkey face" for row in range(40))
        labels = data.labels.clone()
        labels[:6] = (labels[:6] + 1) % 4  # 6 of the 10 monkeys are wrong
        data = replace(data, labels=labels, columns={"concept": family})
        result = run(
            "surface", make_classifier(ReadsLabel(4)), data, by="concept", unseen=("monkey",)
        )
        assert score(result, "unseen_accuracy").value == pytest.approx(0.4)
        assert score(result, "unseen_accuracy").n == 10
        assert score(result, "seen_accuracy").value == 1.0
        assert score(result, "gap").value == pytest.approx(0.6)
        assert score(result, "worst_group_accuracy").condition == {"concept": "monkey"}
        assert score(result, "mean_group_accuracy").value == pytest.approx(0.7)
        assert score(result, "group_accuracy", group="monkey face").n == 30

    def test_mistakes_are_told(self) -> None:
        toy = make_classifier(ReadsLabel(4))
        with pytest.raises(BadParameterError, match="no column 'vendor'"):
            run("surface", toy, make_dataset(8), by="vendor")
        with pytest.raises(BadParameterError, match="no image has family newer"):
            run("surface", toy, make_dataset(8), unseen=("newer",))


class TestShapeBias:
    def test_shape_texture_and_agreeing_cues(self) -> None:
        data = make_dataset(8)
        shown = [CLASSES[label] for label in data.labels]
        shape = [*shown[:5], *("cat" if name != "cat" else "dog" for name in shown[5:])]
        texture = [*("bee" if name != "bee" else "ant" for name in shown[:4]), shown[4], *shown[5:]]
        columns = {"shape": tuple(shape), "texture": tuple(texture)}
        labels = torch.tensor([CLASSES.index(name) for name in shape])
        data = replace(data, labels=labels, columns=columns)
        result = run("shape_bias", make_classifier(ReadsLabel(4)), data)
        # The reader answers what is shown: four times the shape, three times the texture, and
        # once a picture whose cues agree, which says nothing of the bias.
        bias = score(result, "shape_bias")
        assert bias.value == pytest.approx(4 / 7)
        assert bias.n == 7
        assert bias.higher_is_better is None
        assert score(result, "accuracy").value == pytest.approx(5 / 8)
        made_of = {"shape_source": ("a", "b") * 4, "texture_source": ("x", "y", "z", "z") * 2}
        named = replace(data, columns={**columns, **made_of})
        again = score(run("shape_bias", make_classifier(ReadsLabel(4)), named), "shape_bias")
        assert (again.value, again.ci_method) == (bias.value, "wilson-95:2-groups-x-3-groups")
        with pytest.raises(BadDataError, match="no column 'shape'"):
            run("shape_bias", make_classifier(ReadsLabel(4)), replace(data, columns={}))

    def test_a_category_s_probability_is_the_mean_over_its_classes(self) -> None:
        class Fixed(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                dog, knife = (
                    next(each for each in categories() if each.name == name).places
                    for name in ("dog", "knife")
                )
                probability = torch.full((1000,), 1e-8)
                probability[list(dog)] = 0.6 / len(dog)  # more in sum, less in the mean
                probability[list(knife)] = 0.4
                self.logits = torch.nn.Parameter(probability.log())

            def forward(self, pixels: torch.Tensor) -> torch.Tensor:
                return self.logits.expand(len(pixels), -1)

        model = reader()
        model.network = Fixed()
        data = load_dataset("cue_conflict", path=shared_suite())
        result = run("shape_bias", model, data)
        assert result.outcomes["correct"].tolist() == [
            name == "knife" for name in data.columns["shape"]
        ]


class TestImageNetOutputs:
    def test_models_name_their_outputs_in_many_ways(self) -> None:
        usual = tuple(range(1000))
        words = tuple(each.words for each in imagenet_classes())
        first = tuple(each.words.partition(",")[0] for each in imagenet_classes())
        ids = tuple(each.wnid for each in imagenet_classes())
        numbers = tuple(str(place) for place in range(1000))
        labels = tuple(f"LABEL_{place}" for place in range(1000))
        for names in (words, first, ids, numbers, labels, imagenet_names()):
            assert imagenet_outputs(names) == usual
        assert imagenet_outputs(("background", *words)) == tuple(range(1, 1001))
        turned = tuple(reversed(ids))
        assert imagenet_outputs(turned) == tuple(reversed(range(1000)))
        more = (*ids, "n99999999")  # a model of more classes, known by their ids
        assert imagenet_outputs(more) == usual

    def test_other_models_are_not_taken_for_imagenet(self) -> None:
        assert imagenet_outputs(CLASSES) is None
        assert imagenet_outputs(tuple(f"thing {row}" for row in range(1000))) is None
        shuffled = (*imagenet_names()[500:], *imagenet_names()[:500])
        assert imagenet_outputs(shuffled) == (*range(500, 1000), *range(500))

    def test_objectnet_is_scored_by_any_output_of_a_class(self) -> None:
        names = tuple(each.name for each in objectnet_classes())
        alarm, banana = names.index("alarm clock"), names.index("banana")
        analog, digital = objectnet_classes()[alarm].places
        fruit = objectnet_classes()[banana].places[0]
        logits = torch.zeros(4, 1000)
        logits[0, digital] = 5.0  # the second answer of the class
        logits[1, [analog, 7]] = torch.tensor([4.0, 5.0])  # a class that ObjectNet lacks is ahead
        logits[2, [fruit, digital]] = torch.tensor([6.0, 5.0])
        logits[3, analog] = 5.0
        labels = torch.tensor([alarm] * 4)
        words = tuple(each.words for each in imagenet_classes())
        expected = {"subset": [True, True, False, True], "all": [True, False, False, True]}
        for space, right in expected.items():
            mapping = match_classes(words, names, space)  # type: ignore[arg-type]
            found, targets = mapping.project(logits, labels)
            assert (found.argmax(dim=1) == targets).tolist() == right
            assert "125 of ImageNet's 1000" in mapping.description
        small = match_classes(words, names, "subset").logits(logits)
        assert small.shape == (4, 113)


@pytest.fixture(scope="module")
def val() -> Dataset:
    return load_dataset("imagenet", path=shared_suite())


class TestVariants:
    def test_a_perfect_model_is_perfect_everywhere(self, val: Dataset) -> None:
        result = run("imagenet_variants", reader(), val, root=shared_suite())
        for each in result.scores:
            if each.metric.endswith("accuracy"):
                assert each.value == 1.0, each
            if each.metric == "gap":
                assert each.value == 0.0
        sets = {each.condition["set"] for each in result.scores if "set" in each.condition}
        assert len(sets) == 8
        assert score(result, "mean_outside_accuracy").condition == {"sets": "5 of 5"}
        assert score(result, "shape_bias", set="cue_conflict").value == 1.0
        assert "best of its 200" in result.convention
        assert "2 px off" in result.convention

    def test_both_readings_of_the_class_space_differ_where_they_should(self, val: Dataset) -> None:
        # Wrong about one picture of ImageNet-R, by answering a class that is not among its 200.
        place = next(p for p in subset("r")[::40] if p + 1 not in subset("r"))
        result = run("imagenet_variants", reader([place]), val, root=shared_suite())
        everywhere = score(result, "outside_accuracy", set="imagenet_r", space="all")
        assert everywhere.value == pytest.approx(1 - 1 / everywhere.n)
        among = score(result, "outside_accuracy", set="imagenet_r", space="subset")
        logits_tie = 0 if subset("r")[0] == place else 1  # all its other outputs are equal
        assert among.value == pytest.approx(1 - logits_tie / among.n)

    def test_real_counts_any_accepted_label_and_leaves_empty_ones_out(self, val: Dataset) -> None:
        result = run(
            "imagenet_variants", reader([0, 25]), val, root=shared_suite(), sets="imagenet_real"
        )
        found = score(result, "outside_accuracy", set="imagenet_real")
        assert found.n == 39
        # The labels accept a class and the one three further; the next one is neither.
        assert found.value == pytest.approx(37 / 39)
        accepting = reader()
        accepting.network.wrong = set()
        data = load_dataset("imagenet_real", path=shared_suite())
        shifted = replace(data, labels=(data.labels + 3) % 1000)
        assert run("clean", accepting, shifted, per_class=False).outcomes["correct"].all()
        assert "any-of-the-accepted" in run("clean", accepting, data, per_class=False).convention

    def test_imagenet_s_own_images_of_the_same_classes(self, val: Dataset) -> None:
        shared = [p for p in range(0, 1000, 25) if p in subset("a")]
        result = run("imagenet_variants", reader(), val, root=shared_suite(), sets="imagenet_a")
        assert score(result, "same_classes_accuracy", set="imagenet_a").n == len(shared)

    def test_only_what_is_there_is_measured_and_the_rest_is_named(
        self, tmp_path: Path, val: Dataset
    ) -> None:
        build(tmp_path)
        for folder in ("objectnet-1.0", "stylized-imagenet", "cue-conflict", "real.json"):
            path = tmp_path / folder
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        result = run("imagenet_variants", reader(), val, root=str(tmp_path))
        assert score(result, "mean_outside_accuracy").condition == {"sets": "4 of 5"}
        missing = "not measured: objectnet, stylized_imagenet, imagenet_real, cue_conflict"
        assert missing in result.notes
        with pytest.raises(BadParameterError, match=r"objectnet-1\.0/images"):
            run("imagenet_variants", reader(), val, root=str(tmp_path), sets="objectnet")
        with pytest.raises(UnknownNameError, match="imagenet_v2"):
            run("imagenet_variants", reader(), val, root=str(tmp_path), sets="imagenet_v3")
        with pytest.raises(BadDataError, match="none of the variants"):
            run("imagenet_variants", reader(), val, root=str(tmp_path / "imagenet"))

    def test_data_without_imagenet_s_classes_is_refused(self) -> None:
        with pytest.raises(UserError, match="does not know"):
            run("imagenet_variants", reader(), make_dataset(8), root=shared_suite())

    def test_through_the_front_door(self, tmp_path: Path, val: Dataset) -> None:
        words = tuple(each.words for each in imagenet_classes())
        (result,) = measure(
            {"perfect": reader(classes=words)},
            {"imagenet_variants": {"root": shared_suite(), "sets": "imagenet_r,objectnet"}},
            data=val,
            out=tmp_path,
        )
        assert result.model.class_space == "ImageNet's 1000 classes, in their usual order"
        assert len(list((tmp_path / "results").rglob("*.json"))) == 1


def test_numbered_outputs_are_imagenets_whatever_the_order_of_its_names() -> None:
    names = imagenet_names()
    mixed = tuple(sorted(names))  # as the folders of a dataset are
    numbered = tuple(str(place) for place in range(1000))
    found = match_classes(numbered, mixed)
    assert tuple(names[place] for place in found.outputs) == mixed
    assert found.by_position
    assert match_classes(numbered, names).outputs.tolist() == list(range(1000))


def test_two_names_of_the_data_for_one_class_are_refused() -> None:
    with pytest.raises(BadDataError, match="several names for one class of the model: Cat, cat"):
        match_classes(("cat", "dog"), ("Cat", "cat", "dog"))
