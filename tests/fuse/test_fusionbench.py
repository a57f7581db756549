"""FusionBench's model pools, as they are published, and what it saves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from commands import invoke
from dual_encoders import make_clip, make_expert
from stockpot.checkpoints.open import open_checkpoint
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadParameterError, UserError
from stockpot.fuse.foreign import read_foreign
from stockpot.fuse.run import fuse
from stockpot.models.load import load_model
from stockpot.score.scorer import scorer_for

TREE = {
    "modelpool/CLIPVisionModelPool/_template.yaml": """
        _usage_: |
          defaults: [CLIPVisionModelPool@: _template]
        _target_: fusion_bench.modelpool.CLIPVisionModelPool
        models: ???
        processor: openai/clip-vit-base-patch32
        """,
    "modelpool/CLIPVisionModelPool/two.yaml": """
        defaults:
          - CLIPVisionModelPool@: _template
          - /model/clip-vit@models: clip_two_tasks
          - /dataset/image_classification/test@test_datasets: the_eight_tasks
        processor: {_target_: x, pretrained_model_name_or_path: openai/clip-vit-base-patch16}
        """,
    "modelpool/CLIPVisionModelPool/listed.yaml": """
        defaults:
          - _self_
          - /model/clip-vit@models: [clip, clip_cars]
        models: {cars: somewhere/else, dtd: lab/clip_dtd}
        """,
    "model/clip-vit/clip.yaml": "_pretrained_: lab/clip",
    "model/clip-vit/clip_cars.yaml": "cars: lab/clip_cars",
    "model/clip-vit/clip_dtd.yaml": """
        dtd: {_target_: x, pretrained_model_name_or_path: lab/clip_dtd}
        """,
    "model/clip-vit/clip_two_tasks.yaml": "defaults: [clip, clip_cars, clip_dtd]",
    "program.yaml": """
        defaults:
          - hydra: default
          - modelpool: CLIPVisionModelPool/two
          - _self_
        modelpool: {models: {dtd: lab/newer}}
        """,
    "other.yaml": """
        defaults:
          - modelpool: CLIPVisionModelPool/two
          - _self_
          - override /model/clip-vit@modelpool.models: clip_cars
        modelpool:
          models: {_pretrained_: "${..base_model}"}
          base_model: lab/clip-large
        """,
}  # fmt: skip
TWO, LISTED = (f"modelpool/CLIPVisionModelPool/{name}.yaml" for name in ("two", "listed"))
COMPOSED = {
    TWO: {"_pretrained_": "lab/clip", "cars": "lab/clip_cars", "dtd": "lab/clip_dtd"},
    LISTED: {"cars": "lab/clip_cars", "dtd": "lab/clip_dtd", "_pretrained_": "lab/clip"},
    "program.yaml": {"_pretrained_": "lab/clip", "cars": "lab/clip_cars", "dtd": "lab/newer"},
    "other.yaml": {"_pretrained_": "lab/clip-large", "cars": "lab/clip_cars"},
}
"""What Hydra 1.3.2 composes of these files, a pool being that of `modelpool=...`."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("config")
    for name, text in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models under their hub ids."""
    root = tmp_path_factory.mktemp("models")
    base = make_clip(root / "lab" / "clip")
    for seed, name in enumerate(("clip_cars", "clip_dtd")):
        make_expert(base, root / "lab" / name, seed=seed)
    return root


@pytest.mark.parametrize("name", COMPOSED)
def test_pools_are_composed_as_hydra_does(name: str, tree: Path) -> None:
    pool = read_foreign(tree / name)
    assert {"_pretrained_": pool.base, **pool.members} == COMPOSED[name]


def test_what_is_left_out_of_a_pool_is_said(tree: Path) -> None:
    pool = read_foreign(tree / TWO)
    assert pool.ignored == (
        "processor (fusion needs weights only)", "test_datasets (fusion needs weights only)",
    )  # fmt: skip
    assert "hydra (fusion needs weights only)" in read_foreign(tree / "program.yaml").ignored


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pool.yaml"
    path.write_text(text)
    return path


def test_adapters_relative_names_and_new_heads(tmp_path: Path) -> None:
    pool = read_foreign(
        write(
            tmp_path,
            """
            models:
              _pretrained_:
                _target_: fusion_bench.models.linearized.vision_model.load_fft_vision_model_hf
                model_name: ${...base_model}
              cars:
                _target_: fusion_bench.models.linearized.vision_model.load_lora_vision_model_hf
                base_model_name: lab/clip
                peft_name: lab/clip_cars_lora-16
                merge_and_unload: true
            base_model: lab/clip
            """,
        )
    )
    assert (pool.base, pool.members) == ("lab/clip", {"cars": "lab/clip_cars_lora-16"})
    alone = "models: {t5: {_target_: x, base_model_path: lab/t5, peft_model_path: lab/lora}}"
    pool = read_foreign(write(tmp_path, alone))
    assert (pool.base, pool.members) == ("lab/t5", {"t5": "lab/lora"})
    pool = read_foreign(
        write(
            tmp_path,
            """
            _target_: fusion_bench.modelpool.ResNetForImageClassificationPool
            type: transformers
            models:
              _pretrained_: {config_path: lab/resnet-18, pretrained: true, dataset_name: dtd}
              cars: lab/resnet-18_cars
              open: {model_name: ViT-B-32, pickle_path: "${...folder}/Cars/finetuned.pt"}
            folder: ./checkpoints
            """,
        )
    )
    assert pool.base == "lab/resnet-18"
    assert pool.members == {
        "cars": "lab/resnet-18_cars", "open": "./checkpoints/Cars/finetuned.pt",
    }  # fmt: skip
    assert "models._pretrained_.dataset_name (a new head)" in pool.ignored


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: ???", "left open"),
        ("defaults: [/model/x@models: y]", "there is no model/x/y.yaml"),
        ("models: {a: '${..nothing}'}", "there is no nothing"),
        ("models: {a: '${.b}', b: '${.a}'}", "names itself"),
        ("models: {a: '${now:x}'}", "is not supported"),
        ("models: {a: {encoder: resnet50, ckpt_path: null}}", "got keys encoder, ckpt_path"),
        ("models: {a: {config_path: x, pretrained: false}}", "random weights of x"),
        ("models: {a: {model_name: resnet18, weights: DEFAULT}}", "got keys model_name, weights"),
        ("models: {a: {_target_: m.load_l_lora_vision_model_hf, peft_name: x}}", "linearised"),
        (
            "models: {_pretrained_: x, a: {peft_name: l, base_model_name: y}}",
            "belongs to y, the pool's base is x",
        ),
        ("# @package _global_\nmodels: {a: x}", "@package _global_"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadParameterError, match=message):
        read_foreign(write(tmp_path, text))


def test_a_pool_is_fused_into_a_whole_clip(tree: Path, lab: Path, tmp_path: Path) -> None:
    done = invoke("fuse", tree / TWO, "average", "--models-root", lab, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    made = load_file(tmp_path / "out" / "model.safetensors")
    base = load_file(lab / "lab" / "clip" / "model.safetensors")
    experts = [load_file(lab / "lab" / f"clip_{n}" / "model.safetensors") for n in ("cars", "dtd")]
    assert set(made) == set(base)
    assert torch.equal(made["text_projection.weight"], base["text_projection.weight"])
    for name, values in experts[0].items():
        whole = name if name in made else f"vision_model.{name}"
        torch.testing.assert_close(made[whole], (values + experts[1][name]) / 2)
    load_model(tmp_path / "out", classes=("ant", "bee"))
    empty = write(tmp_path, "models: {_pretrained_: lab/clip}")
    done = invoke("fuse", empty, "average", "-o", tmp_path / "none")
    assert done.exit_code == 1
    assert "names a base (lab/clip) and no members" in done.output


def test_a_pool_of_adapters(lab: Path, tmp_path: Path) -> None:
    """W + (alpha / r) B A, for adapters of the bare vision transformer, as they are published."""
    weight = "encoder.layers.1.self_attn.q_proj.weight"
    base = open_checkpoint(lab / "lab" / "clip")
    before = base.read(f"vision_model.{weight}")
    changes = []
    for seed, name in enumerate(("one", "two")):
        generator = torch.Generator().manual_seed(seed)
        down, up = (torch.randn(s, generator=generator) for s in ((2, 16), (16, 2)))
        key = f"base_model.model.{weight.removesuffix('.weight')}"
        (tmp_path / "lab" / name).mkdir(parents=True)
        save_file(
            {f"{key}.lora_A.weight": down, f"{key}.lora_B.weight": up},
            tmp_path / "lab" / name / "adapter_model.safetensors",
        )
        config = {"peft_type": "LORA", "r": 2, "lora_alpha": 8, "target_modules": ["q_proj"]}
        (tmp_path / "lab" / name / "adapter_config.json").write_text(json.dumps(config))
        changes.append(4.0 * up @ down)
    text = f"""
        models:
          _pretrained_: {lab}/lab/clip
          one: {{_target_: x, base_model_name: "{lab}/lab/clip", peft_name: lab/one}}
          two: {{_target_: x, base_model_name: "{lab}/lab/clip", peft_name: lab/two}}
        """
    pool = read_foreign(write(tmp_path, text), models_root=tmp_path)
    made = fuse("task_arithmetic", pool.members, base=pool.base, scale=0.5)
    wanted = before + 0.5 * (changes[0] + changes[1])
    torch.testing.assert_close(made[f"vision_model.{weight}"], wanted, rtol=1e-5, atol=1e-5)


def resnet(folder: Path, classes: tuple[str, ...], seed: int) -> Path:
    from transformers import ResNetConfig, ResNetForImageClassification, ViTImageProcessor

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ResNetForImageClassification(
            ResNetConfig(
                embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="basic",
                id2label=dict(enumerate(classes)), label2id={c: i for i, c in enumerate(classes)},
            )
        )  # fmt: skip
    model.save_pretrained(folder)
    ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)
    return folder


def test_resnets_keep_the_heads_of_their_tasks(tmp_path: Path) -> None:
    """The backbone is merged, every task has its own head over it, as FusionBench's pools do."""
    tasks = {"clothes": ("T - shirt / top", "Trouser", "Bag"), "bugs": ("ant", "bee")}
    for seed, (name, classes) in enumerate(tasks.items()):
        resnet(tmp_path / "lab" / name, classes, seed)
    resnet(tmp_path / "lab" / "base", tuple("abcde"), 7)
    pool = write(
        tmp_path,
        """
        type: transformers
        models:
          _pretrained_: {config_path: lab/base, pretrained: true}
          clothes: lab/clothes
          bugs: lab/bugs
        """,
    )
    done = invoke("fuse", pool, "task_arithmetic", "--models-root", tmp_path, "--head", "each",
                  "-p", "scale=0.5", "-o", tmp_path / "out")  # fmt: skip
    assert done.exit_code == 0, done.output
    before = load_file(tmp_path / "lab" / "base" / "model.safetensors")
    members = [load_file(tmp_path / "lab" / name / "model.safetensors") for name in tasks]
    for own, (name, classes) in zip(members, tasks.items(), strict=True):
        made = load_file(tmp_path / "out" / name / "model.safetensors")
        assert set(made) == set(own)
        assert torch.equal(made["classifier.1.weight"], own["classifier.1.weight"])
        key = "resnet.embedder.embedder.convolution.weight"
        wanted = before[key] + 0.5 * sum(each[key] - before[key] for each in members)
        torch.testing.assert_close(made[key], wanted)
        assert load_model(tmp_path / "out" / name).classes == classes
    with pytest.raises(UserError, match=r"--head first, --head each"):
        fuse("average", [tmp_path / "lab" / name for name in tasks])


def test_a_head_named_by_the_convention_meets_the_data(little_sets: Path) -> None:
    """FusionBench's classifiers of Fashion-MNIST call their classes by its words, not by ours."""
    data = load_dataset("fashion_mnist")
    assert data.vocabulary is not None
    names = data.vocabulary.names
    assert names != data.classes
    scorer = scorer_for(names[::-1], data)
    assert scorer.mapping.outputs.tolist() == list(range(10))[::-1]


def test_a_merged_state_dict_becomes_a_whole_clip(lab: Path, tmp_path: Path) -> None:
    """What it saves of a merged vision model with torch: bare weights, put into their base."""
    weights = load_file(lab / "lab" / "clip_cars" / "model.safetensors")
    torch.save(weights, tmp_path / "merged.pt")
    out = fuse("average", [tmp_path / "merged.pt"], base=lab / "lab" / "clip", out=tmp_path / "out")
    merged = load_model(out, classes=("ant", "bee")).state_dict()
    expert = load_model(lab / "lab" / "clip_cars", classes=("ant", "bee")).state_dict()
    assert all(torch.equal(merged[name], values) for name, values in expert.items())


def test_merging_weights_make_a_model_from_the_command_line(lab: Path, tmp_path: Path) -> None:
    folders = [lab / "lab" / name for name in ("clip_cars", "clip_dtd")]
    torch.save(torch.tensor([1.0, 0.0]), tmp_path / "weights.pt")
    done = invoke("fuse", "adamerging", *folders, "--base", lab / "lab" / "clip", "--load",
                  tmp_path / "weights.pt", "-o", tmp_path / "out")  # fmt: skip
    assert done.exit_code == 0, done.output
    merged = load_model(tmp_path / "out", classes=("ant", "bee")).state_dict()
    for name, values in load_model(folders[0], classes=("ant", "bee")).state_dict().items():
        torch.testing.assert_close(merged[name], values)
