"""Every supported Hugging Face family: built, saved, loaded, equal to the library's own logits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image
from safetensors.torch import load_file, save_file

import stockpot
from stockpot.errors import BadCheckpointError, BadParameterError, UserError
from stockpot.models.load import Vocabulary, load_for, load_model, takes_classes
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

LABELS = dict(enumerate(("ant", "bee", "cat")))
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32}
VIT = {**TINY, "intermediate_size": 32, "patch_size": 8}
STAGES = {"depths": [1, 1], "hidden_sizes": [8, 16], "num_stages": 2}

FAMILIES = {
    "vit": lambda: hf.ViTForImageClassification(hf.ViTConfig(**VIT, id2label=LABELS)),
    "deit": lambda: hf.DeiTForImageClassification(hf.DeiTConfig(**VIT, id2label=LABELS)),
    "beit": lambda: hf.BeitForImageClassification(hf.BeitConfig(**VIT, id2label=LABELS)),
    "dinov2": lambda: hf.Dinov2ForImageClassification(
        hf.Dinov2Config(**TINY, patch_size=8, mlp_ratio=2, id2label=LABELS)
    ),
    "swin": lambda: hf.SwinForImageClassification(
        hf.SwinConfig(
            image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2],
            window_size=4, id2label=LABELS,
        )
    ),
    "resnet": lambda: hf.ResNetForImageClassification(
        hf.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic",
            id2label=LABELS,
        )
    ),
    "convnext": lambda: hf.ConvNextForImageClassification(
        hf.ConvNextConfig(**STAGES, image_size=32, id2label=LABELS)
    ),
    "convnextv2": lambda: hf.ConvNextV2ForImageClassification(
        hf.ConvNextV2Config(**STAGES, image_size=32, id2label=LABELS)
    ),
    "clip": lambda: hf.CLIPForImageClassification(
        hf.CLIPConfig(vision_config=VIT, text_config=TEXT, projection_dim=8, id2label=LABELS)
    ),
    "siglip": lambda: hf.SiglipForImageClassification(
        hf.SiglipConfig(vision_config=VIT, text_config=SIGLIP_TEXT, id2label=LABELS)
    ),
}  # fmt: skip
TEXT = {
    "vocab_size": 99, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "max_position_embeddings": 24,
    "bos_token_id": 97, "eos_token_id": 98, "pad_token_id": 98,
}  # fmt: skip
SIGLIP_TEXT = {key: TEXT[key] for key in list(TEXT)[:6]} | {"projection_size": 16}
PLAIN = Preprocess(ImageSize(32, 32), ImageSize(32, 32), (0.5, 0.4, 0.3), (0.2, 0.3, 0.25))


def save(model: torch.nn.Module, folder: Path) -> None:
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PLAIN.to_hub()))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_the_library(family: str, tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = FAMILIES[family]().eval()
    for parameter in model.parameters():  # some heads start at zero
        parameter.data += 0.02 * torch.randn(parameter.shape, generator=seeded(3))
    save(model, tmp_path / "m")
    pixels = torch.rand(3, 3, 32, 32, generator=seeded(1))
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (PLAIN.mean, PLAIN.std))
    with torch.inference_mode():
        expected = model(pixel_values=(pixels - mean) / std).logits
        ours = load_model(tmp_path / "m").eval()
        assert torch.equal(ours(pixels), expected)
        assert ours.classes == ("ant", "bee", "cat")
        again = load_model(ours.save(tmp_path / "again")).eval()
        assert torch.equal(again(pixels), expected)
        features = ours.features(pixels)
    assert features.ndim == 2
    assert len(features) == 3


EDGES = {"neck_hidden_sizes": [8] * 6 + [16], "hidden_sizes": [12, 16, 20]}
PUBLISHED = {
    "mobilevit": lambda: (
        hf.MobileViTForImageClassification(hf.MobileViTConfig(**EDGES, id2label=LABELS)),
        hf.MobileViTImageProcessorPil(),
    ),
    "efficientnet": lambda: (
        hf.EfficientNetForImageClassification(
            hf.EfficientNetConfig(
                width_coefficient=0.1, depth_coefficient=0.1, hidden_dim=128, id2label=LABELS
            )
        ),
        hf.EfficientNetImageProcessorPil(size={"height": 96, "width": 96}, resample=0),
    ),
    "poolformer": lambda: (
        hf.PoolFormerForImageClassification(
            hf.PoolFormerConfig(hidden_sizes=[8] * 4, depths=[1] * 4, id2label=LABELS)
        ),
        hf.PoolFormerImageProcessorPil(),
    ),
}


@pytest.mark.parametrize("family", PUBLISHED)
def test_a_picture_reaches_the_network_as_the_folder_says(family: str, tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, processor = PUBLISHED[family]()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=seeded(3))
    model.eval().save_pretrained(tmp_path / "m")
    processor.save_pretrained(tmp_path / "m")
    noise = torch.randint(0, 256, (30, 40, 3), generator=seeded(1), dtype=torch.uint8)
    picture = Image.fromarray(noise.numpy()).resize((400, 300))
    given = processor(picture, return_tensors="pt")
    seen: list[torch.Tensor] = []
    with torch.inference_mode():
        expected = model(**given).logits
        ours = load_model(tmp_path / "m").eval()
        ours.network.model.register_forward_pre_hook(  # type: ignore[operator, union-attr]
            lambda _, args, kwargs: seen.append(kwargs["pixel_values"]), with_kwargs=True
        )
        pixels = torch.from_numpy(np.array(ours.preprocess.fit(picture))).permute(2, 0, 1)[None]
        torch.testing.assert_close(ours(pixels), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(seen[0], given["pixel_values"].float(), rtol=1e-5, atol=2e-6)
        again = load_model(ours.save(tmp_path / "again")).eval()
        assert torch.equal(again(pixels), ours(pixels))


def test_what_answers_without_logits_is_told(tmp_path: Path) -> None:
    model = hf.AutoModelForImageClassification.from_config(hf.PPLCNetConfig(num_labels=3))
    save(model, tmp_path / "m")
    with pytest.raises(BadCheckpointError, match=r"PPLCNet.* has no logits"):
        load_model(tmp_path / "m")(torch.rand(1, 3, 32, 32))


def test_class_names_may_be_null(tmp_path: Path) -> None:
    save(FAMILIES["resnet"](), tmp_path / "m")
    config = tmp_path / "m" / "config.json"
    said = json.loads(config.read_text())
    config.write_text(json.dumps({**said, "id2label": None, "label2id": None, "num_labels": 3}))
    assert load_model(tmp_path / "m").classes == ("0", "1", "2")


def test_a_library_that_names_no_classes_has_numbers(tmp_path: Path) -> None:
    settings = hf.PvtConfig(
        hidden_sizes=[8] * 4, depths=[1] * 4, num_attention_heads=[1] * 4, image_size=32,
        num_labels=3,
    )  # fmt: skip
    save(hf.AutoModelForImageClassification.from_config(settings), tmp_path / "m")
    assert load_model(tmp_path / "m").classes == ("0", "1", "2")


@pytest.mark.parametrize("names", [{"cat": "0", "dog": "1", "eel": "2"}, ["cat", "dog", "eel"]])
def test_class_names_without_numbers_are_told(names: object, tmp_path: Path) -> None:
    save(FAMILIES["resnet"](), tmp_path / "m")
    config = tmp_path / "m" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "id2label": names}))
    with pytest.raises(BadCheckpointError, match="id2label"):
        load_model(tmp_path / "m")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def dual_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pico CLIPModel with a byte-pair tokenizer of single letters."""
    folder = tmp_path_factory.mktemp("clip")
    letters = [*"abcdefghijklmnopqrstuvwxyz."]
    words = letters + [letter + "</w>" for letter in letters]
    vocabulary = {word: index for index, word in enumerate(words)}
    vocabulary |= {"<|startoftext|>": 97, "<|endoftext|>": 98}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokenizer = hf.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokenizer.save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = hf.CLIPModel(
            hf.CLIPConfig(vision_config=VIT, text_config=TEXT, projection_dim=8)
        ).eval()
    save(model, folder)
    return folder


@pytest.mark.parametrize("layout", ["new", "old"])
def test_zero_shot_head_is_the_cosine_classifier(
    layout: str, dual_encoder: Path, tmp_path: Path
) -> None:
    import shutil

    folder = Path(shutil.copytree(dual_encoder, tmp_path / "clip"))
    if layout == "old":
        # Files written before transformers 5 carry position ids and nest the vision tower.
        state = load_file(folder / "model.safetensors")
        state["vision_model.embeddings.position_ids"] = torch.arange(17)[None]
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    classes, templates = ("ant", "big bee"), ("a photo of a {}.", "{}.")
    ours = load_model(folder, classes=classes, templates=templates).eval()
    model = hf.CLIPModel.from_pretrained(dual_encoder).eval()
    tokenizer = hf.CLIPTokenizer.from_pretrained(dual_encoder)
    pixels = torch.rand(2, 3, 32, 32, generator=seeded(2))
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (PLAIN.mean, PLAIN.std))
    rows = []
    with torch.inference_mode():
        for name in classes:
            tokens = tokenizer(
                [t.format(name) for t in templates], return_tensors="pt", padding=True
            )
            text = model.get_text_features(**tokens).pooler_output
            text = (text / text.norm(dim=-1, keepdim=True)).mean(0)
            rows.append(text / text.norm())
        image = model.get_image_features(pixel_values=(pixels - mean) / std).pooler_output
        image = image / image.norm(dim=-1, keepdim=True)
        expected = model.logit_scale.exp() * image @ torch.stack(rows).T
        torch.testing.assert_close(ours(pixels), expected, rtol=1e-5, atol=1e-5)


def test_a_dual_encoder_asks_for_classes(dual_encoder: Path) -> None:
    with pytest.raises(UserError, match=r"dual encoder.*classes"):
        load_model(dual_encoder)
    assert takes_classes(dual_encoder)
    made = load_for(dual_encoder, Vocabulary(("ant",), ("a {}",)))
    told = load_model(dual_encoder, classes=("ant",), templates=("a {}",))
    assert made.classes == ("ant",)
    assert torch.equal(made.network.head, told.network.head)  # type: ignore[arg-type]


def test_a_model_with_a_head_needs_no_classes(pico_vit: Path) -> None:
    assert not takes_classes(pico_vit)
    assert load_for(pico_vit, Vocabulary(("ant",))).classes == load_model(pico_vit).classes


def test_wrong_shapes_and_missing_weights_are_named(pico_vit: Path, tmp_path: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(pico_vit, tmp_path / "broken"))
    state = load_file(folder / "model.safetensors")
    state["classifier.weight"] = torch.zeros(7, 16)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        BadCheckpointError, match=r"classifier\.weight is \(7, 16\) in the file, \(4"
    ):
        load_model(folder)
    del state["classifier.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadCheckpointError, match=r"classifier\.weight is missing"):
        load_model(folder)


def test_a_truncated_file_is_named(pico_vit: Path, tmp_path: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(pico_vit, tmp_path / "cut"))
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadCheckpointError, match="cut could not be loaded"):
        load_model(folder)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("no/such/folder/here", "no model at"),
        ("icons-resnt", "no model at 'icons-resnt'"),
        ("timm:resnet18", "timm cannot be imported|is installed but broken"),
        ("missing.py:make", "no Python file at missing.py"),
        ("no_such_package:make", "cannot be imported"),
    ],
)
def test_bad_sources_are_answered_in_words(source: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_model(source)


def test_unknown_options_are_suggested(pico_vit: Path) -> None:
    with pytest.raises(UserError, match="Did you mean dtype"):
        load_model(pico_vit, dtpe="bfloat16")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("source", ["icons-resnet", "icons-convnext", "icons-vit"])
def test_a_model_answers_whatever_type_its_weights_have(source: str, dtype: str) -> None:
    pixels = stockpot.load_dataset("icons", limit=8).images.pixels
    with torch.inference_mode():
        whole = stockpot.load_model(source)(pixels)
        model = stockpot.load_model(source, dtype=dtype)
        answers = model(pixels)
    assert answers.dtype == getattr(torch, dtype)
    spread = float(whole.std())
    torch.testing.assert_close(answers.float(), whole, atol=0.05 * spread, rtol=0.02)
    rows = model.network.features(model.seen(pixels))
    assert rows.dtype == answers.dtype


@pytest.mark.parametrize("classes", ["cat", [], [["cat"]], 3])
def test_class_names_are_a_list(classes: object) -> None:
    data = stockpot.load_dataset("icons", limit=2)
    for source in ("clip-base", lambda pixels: pixels.mean((2, 3))):
        with pytest.raises(BadParameterError, match="classes: expected a list of class names"):
            load_model(source, classes=classes)
    for keep in (True, False):
        with pytest.raises(BadParameterError, match="classes: expected a list of class names"):
            load_for("clip-base", data, options={"classes": classes}, keep=keep)
    assert load_model("clip-base", classes=[1, 2]).classes == ("1", "2")


def test_a_bare_module_is_told_how_to_become_a_model() -> None:
    data = stockpot.load_dataset("icons", limit=2)
    with pytest.raises(BadParameterError, match="name or the place of a model, got Linear"):
        stockpot.harden("nominal", torch.nn.Linear(3, 3), data)


@pytest.mark.parametrize("asked", ["predict", "measure", "explain"])
def test_a_model_that_was_asked_answers_as_before(asked: str) -> None:
    model = stockpot.load_model("icons-resnet")  # batch statistics change when they train
    data = stockpot.load_dataset("icons", limit=4)
    pixels = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    frozen = next(part for part in model.modules() if isinstance(part, torch.nn.BatchNorm2d))
    with torch.no_grad():
        before = model(pixels)
    if asked == "predict":
        model.predict(pixels)
    elif asked == "measure":
        stockpot.measure({"mine": model}, "clean", data=data)
    else:
        stockpot.explain(model, pixels)
    with torch.no_grad():
        assert torch.equal(model(pixels), before)
    model.train()  # one layer of a model that is trained is frozen, and stays so
    frozen.eval()
    model.predict(pixels)
    assert [part for part in model.modules() if not part.training] == [frozen]
