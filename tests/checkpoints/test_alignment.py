"""Checkpoints are lined up by their headers, and one message lists all that differs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from stockpot.checkpoints.alignment import Copy, align
from stockpot.checkpoints.layouts import by_plain_name, is_head, plain_name
from stockpot.checkpoints.open import open_checkpoint
from stockpot.errors import BadCheckpointError

State = dict[str, Tensor]


def vision(prefix: str = "") -> State:
    return {
        f"{prefix}embeddings.patch_embedding.weight": torch.zeros(4, 3, 2, 2),
        f"{prefix}encoder.layers.0.mlp.fc1.weight": torch.zeros(8, 4),
        f"{prefix}post_layernorm.weight": torch.zeros(4),
    }


def whole_clip() -> State:
    return {
        **vision("vision_model."),
        "text_model.encoder.layers.0.mlp.fc1.weight": torch.ones(6, 6),
        "visual_projection.weight": torch.ones(2, 4),
        "text_projection.weight": torch.ones(2, 6),
        "logit_scale": torch.tensor(4.6),
    }


def classifier(classes: int, prefix: str = "") -> State:
    return {
        f"{prefix}body.weight": torch.zeros(5, 5),
        f"{prefix}classifier.weight": torch.zeros(classes, 5),
        f"{prefix}classifier.bias": torch.zeros(classes),
    }


def opened(*states: State):  # type: ignore[no-untyped-def]
    return [open_checkpoint(state, label=f"m{i}") for i, state in enumerate(states)]


def test_names_without_wrappers() -> None:
    assert plain_name("module.model.vision_model.encoder.x") == "encoder.x"
    assert plain_name("text_model.encoder.x") == "text_model.encoder.x"
    # Two names that would fall together keep their prefixes.
    assert by_plain_name(["model.x", "x"]) == {"model.x": "model.x", "x": "x"}


def test_heads_are_told_from_hidden_layers() -> None:
    heads = ["classifier.weight", "head.fc.bias", "fc.weight", "classifier.1.weight"]
    assert all(map(is_head, heads))
    assert not any(map(is_head, ["encoder.layers.0.mlp.fc1.weight", "layers.0.head_norm.weight"]))


@pytest.mark.parametrize("prefix", ["", "vision_model.", "model.", "module.", "module.model."])
def test_layouts_of_one_model_line_up(prefix: str) -> None:
    alignment = align(opened(vision(), vision(prefix)))
    assert [row.name for row in alignment.rows] == list(vision())
    assert [row.members[1] for row in alignment.rows] == list(vision(prefix))


def test_a_whole_clip_member_gives_its_vision_encoder() -> None:
    alignment = align(opened(vision(), whole_clip()))
    assert len(alignment.rows) == 3
    assert not alignment.copies
    assert "only the vision encoder" in alignment.notes[0]


def test_a_whole_clip_base_keeps_its_text_tower() -> None:
    base = open_checkpoint(whole_clip(), label="base")
    alignment = align(opened(vision(), vision()), base)
    assert list(alignment.infos()) == list(whole_clip())
    assert [copied.name for copied in alignment.copies] == list(whole_clip())[3:]


def test_two_whole_clips_are_fused_whole() -> None:
    assert len(align(opened(whole_clip(), whole_clip())).rows) == 7


def test_one_message_lists_every_difference() -> None:
    first = {**classifier(10), "a": torch.zeros(3), "b": torch.zeros(2, 2), "c": torch.zeros(1)}
    second = {**classifier(5), "b": torch.zeros(2, 3), "c": torch.zeros(1).int()}
    second["d"] = torch.zeros(1)
    with pytest.raises(BadCheckpointError) as caught:
        align(opened(first, second))
    text = str(caught.value)
    assert "m1 lacks a [--intersect, --exclude]" in text
    assert "m1 has, beyond m0, d [" in text
    assert "another number of classes than m0: classifier.weight (5x5, not 10x5)" in text
    assert "--head drop, --head first" in text
    assert "b (2x3, not 2x2)" in text
    assert "integers where floats are fused: c" in text


def test_long_lists_are_cut() -> None:
    first = {f"layer.{i}": torch.zeros(1) for i in range(20)}
    with pytest.raises(BadCheckpointError, match="and 15 more"):
        align(opened(first, {"layer.0": torch.zeros(1)}))


def names_of(alignment) -> tuple[list[str], list[str]]:  # type: ignore[no-untyped-def]
    return [row.name for row in alignment.rows], [copied.name for copied in alignment.copies]


def test_options_resolve_what_the_message_says() -> None:
    pool = opened(classifier(10), classifier(5, "model."))
    head = ["classifier.weight", "classifier.bias"]
    assert names_of(align(pool, head="drop")) == (["body.weight"], [])
    assert names_of(align(pool, head="first")) == (["body.weight"], head)
    assert names_of(align(pool, exclude=["classifier.*"])) == (["body.weight"], head)
    assert names_of(align(pool, intersect=True)) == (["body.weight"], head)
    taken = align(pool, head="first").copies[0]
    assert isinstance(taken, Copy)
    assert taken.source.label == "m0"


def test_what_is_excluded_comes_from_the_base() -> None:
    base = open_checkpoint(classifier(10), label="base")
    alignment = align(opened(classifier(10), classifier(10)), base, exclude=["*.bias"])
    assert [copied.source.label for copied in alignment.copies] == ["base"]


def test_integer_buffers_may_be_missing() -> None:
    old = {**vision(), "embeddings.position_ids": torch.arange(5)}
    assert len(align(opened(vision(), old)).rows) == 3
    assert [copied.name for copied in align(opened(old, vision())).copies] == [
        "embeddings.position_ids"
    ]


def test_mixed_precision_is_noted_not_refused() -> None:
    half = {name: value.bfloat16() for name, value in vision().items()}
    assert "dtypes differ (bfloat16, float32)" in align(opened(vision(), half)).notes[0]


def test_nothing_left_to_fuse_is_said() -> None:
    with pytest.raises(BadCheckpointError, match="no tensor is left"):
        align(opened(vision(), vision()), exclude=["*"])


def test_weights_are_tied_only_if_all_tie_them() -> None:
    shared = torch.zeros(2, 2)
    one, two = (
        {"a": shared, "b": shared},
        {"model.a": torch.ones(2, 2), "model.b": torch.zeros(2, 2)},
    )
    assert align(opened(one, dict(one))).tied == {"b": "a"}
    assert align(opened(one, {"a": torch.zeros(2, 2)})).tied == {"b": "a"}
    alignment = align(opened(one, two))
    assert not alignment.tied
    assert len(alignment.rows) == 2
