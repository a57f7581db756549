"""The symmetries of the families that can be aligned: ViT, ResNet, MLP."""

from __future__ import annotations

import re
from collections.abc import Mapping

from stockpot.checkpoints.layouts import plain_name
from stockpot.errors import BadCheckpointError
from stockpot.fuse.permutation.spec import PermutationSpec, Shape

# Names of a transformer's tensors -> the group of each axis; \1 is the layer's number. `stream` is
# the residual stream, `mlp` the hidden units and `heads` the heads of one layer.
_VIT: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    (r".*(class_embedding|cls_token|position_embedding\w*(\.weight)?|distillation_token)", ("…",)),
    (r".*patch_embedding\w*(\.projection)?\.weight", ("stream", None, None, None)),
    (r".*patch_embedding\w*(\.projection)?\.bias", ("stream",)),
    (r".*layers?\.(\d+)\..*(q_proj|k_proj|v_proj|query|key|value)\.weight", ("heads", "stream")),
    (r".*layers?\.(\d+)\..*(q_proj|k_proj|v_proj|query|key|value)\.bias", ("heads",)),
    (
        r".*layers?\.(\d+)\..*(out_proj|o_proj|attention\.output\.dense)\.weight",
        ("stream", "heads"),
    ),
    (r".*layers?\.(\d+)\..*(out_proj|o_proj|attention\.output\.dense)\.bias", ("stream",)),
    (r".*layers?\.(\d+)\.(mlp\.fc1|intermediate\.dense)\.weight", ("mlp", "stream")),
    (r".*layers?\.(\d+)\.(mlp\.fc1|intermediate\.dense)\.bias", ("mlp",)),
    (r".*layers?\.(\d+)\.(mlp\.fc2|output\.dense)\.weight", ("stream", "mlp")),
    (r".*layers?\.(\d+)\.(mlp\.fc2|output\.dense)\.bias", ("stream",)),
    (r".*(layernorm|layer_norm|layrnorm|norm)\w*\.(weight|bias)", ("stream",)),
    (r".*(classifier|head|visual_projection)\.weight", (None, "stream")),
    (r".*pooler\.dense\.weight", (None, "stream")),
)
_UNMOVED = re.compile(r".*(classifier|head|pooler\.dense)\.(weight|bias)|.*position_ids")


def vit_spec(shapes: Mapping[str, Shape], heads: int | None) -> PermutationSpec | None:
    """ViT and CLIP vision encoders in the layouts of transformers."""
    if not any(re.search(r"layers?\.\d+\..*(q_proj|query)\.weight", name) for name in shapes):
        return None
    spec = PermutationSpec()
    for name, shape in shapes.items():
        rule = next(
            ((m, axes) for pattern, axes in _VIT if (m := re.fullmatch(pattern, plain_name(name)))),
            None,
        )
        if rule is None:
            if not _UNMOVED.fullmatch(name) and len(shape):
                return None
            continue
        match, axes = rule
        if axes == ("…",):
            spec.add("stream", name, len(shape) - 1, shape)
            continue
        for axis, group in enumerate(axes):
            if group == "stream":
                spec.add("stream", name, axis, shape)
            elif group == "mlp":
                spec.add(f"mlp.{match[1]}", name, axis, shape)
            elif group == "heads" and heads:
                spec.add(f"heads.{match[1]}", name, axis, shape, units=heads)
    return spec


_RESNET_BLOCK = re.compile(
    r"(?P<block>.*?(?:layer(?P<s1>\d+)\.(?P<b1>\d+)|stages\.(?P<s2>\d+)\.layers\.(?P<b2>\d+)))\."
    r"(?P<part>.*)"
)


def resnet_spec(shapes: Mapping[str, Shape], heads: int | None) -> PermutationSpec | None:
    """ResNets in the layouts of torchvision, timm and transformers."""
    blocks: dict[str, dict[str, Shape]] = {}
    outer: dict[str, Shape] = {}
    for name, shape in shapes.items():
        match = _RESNET_BLOCK.fullmatch(name)
        if match:
            blocks.setdefault(match["block"], {})[name] = shape
        else:
            outer[name] = shape
    if not blocks or not any(len(shape) == 4 for shape in shapes.values()):
        return None
    spec = PermutationSpec()
    stream = "stream.0"
    for name, shape in outer.items():
        if shape and not _is_classifier(name):
            spec.add(stream, name, 0, shape)
    for number, block in enumerate(sorted(blocks, key=_natural), start=1):
        stream = _residual_block(spec, block, blocks[block], stream, f"stream.{number}")
    for name, shape in outer.items():
        if _is_classifier(name) and len(shape) == 2:
            spec.add(stream, name, 1, shape)
    return spec


def _residual_block(
    spec: PermutationSpec, block: str, tensors: Mapping[str, Shape], before: str, fresh: str
) -> str:
    """Add one block; returns the group of the stream that leaves it."""
    convolutions: dict[int, dict[str, Shape]] = {}
    shortcut: dict[str, Shape] = {}
    for name, shape in tensors.items():
        part = name.removeprefix(f"{block}.")
        if part.startswith(("downsample.", "shortcut.")):
            shortcut[name] = shape
        elif match := re.match(r"(?:conv|bn|layer\.)(\d+)", part):
            convolutions.setdefault(int(match[1]), {})[name] = shape
    after = fresh if shortcut else before
    order = sorted(convolutions)
    source = before
    for number in order:
        target = after if number == order[-1] else f"{block}.{number}"
        for name, shape in convolutions[number].items():
            if shape:
                spec.add(target, name, 0, shape)
            if len(shape) == 4:
                spec.add(source, name, 1, shape)
        source = target
    for name, shape in shortcut.items():
        if shape:
            spec.add(after, name, 0, shape)
        if len(shape) == 4:
            spec.add(before, name, 1, shape)
    return after


def _is_classifier(name: str) -> bool:
    return bool(re.search(r"(^|\.)(fc|classifier|head)\.", name))


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name)]


def mlp_spec(shapes: Mapping[str, Shape], heads: int | None) -> PermutationSpec | None:
    """A chain of linear layers, each with its bias and at most a normalisation after it."""
    shapes = _layer_by_layer(shapes)
    weights = [name for name, shape in shapes.items() if len(shape) == 2]
    if len(weights) < 2 or any(len(shape) > 2 for shape in shapes.values()):
        return None
    spec = PermutationSpec()
    source: str | None = None
    for number, (name, shape) in enumerate(shapes.items()):
        if len(shape) == 2:
            if source is not None:
                if shape[1] != spec.sizes[source]:
                    return None
                spec.add(source, name, 1, shape)
            last = name == weights[-1]
            source = None if last else f"hidden.{number}"
            if source is not None:
                spec.add(source, name, 0, shape)
        elif len(shape) == 1 and source is not None:
            if shape[0] != spec.sizes[source]:
                return None
            spec.add(source, name, 0, shape)
    return spec


def _layer_by_layer(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The tensors as a module has them: a file may keep them in the order of the alphabet.

    There a bias stands before its matrix, and layer 10 before layer 2. Layers whose names differ in
    numbers alone are put in the order of these; nothing else tells which layer follows which.
    """
    layers: dict[str, list[str]] = {}
    for name in shapes:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    alike: dict[str, list[str]] = {}
    for layer in layers:
        alike.setdefault(re.sub(r"\d+", "#", layer), []).append(layer)
    numbered = {kind: iter(sorted(found, key=_natural)) for kind, found in alike.items()}
    order = [next(numbered[re.sub(r"\d+", "#", layer)]) for layer in layers]
    parts = [sorted(layers[layer], key=lambda name: -len(shapes[name])) for layer in order]
    return {name: shapes[name] for names in parts for name in names}


def permutation_spec(shapes: Mapping[str, Shape], *, heads: int | None = None) -> PermutationSpec:
    """Recognise the family of a network by its names and list its symmetries.

    Args:
        shapes: tensor name -> shape.
        heads: attention heads of a transformer; without it heads stay where they are.
    """
    for recognise in (vit_spec, resnet_spec, mlp_spec):
        spec = recognise(shapes, heads)
        if spec is not None:
            return spec
    raise BadCheckpointError(
        "no permutation is known for this architecture.",
        hint="Alignment knows ViT and CLIP vision encoders, ResNets, and plain MLPs.",
    )
