"""Autoencoders as diffusers and taming-transformers write them give the numbers they give there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from named_weights import named_pictures, named_weights
from stockpot.dynamic.generators import generators
from stockpot.errors import UserError
from stockpot.models.autoencoder.files import load_autoencoder, save_autoencoder
from stockpot.models.autoencoder.model import Autoencoder
from stockpot.models.inputs import identify_autoencoder

DATA = Path(__file__).parent / "data" / "autoencoders"
RECORDED = np.load(DATA / "outputs.npz")
KNOWN: dict[str, Any] = json.loads((DATA / "tensors.json").read_text())


def weights(name: str) -> dict[str, torch.Tensor]:
    return {
        key: torch.from_numpy(named_weights(key, tuple(shape)))
        for key, shape in KNOWN[name]["tensors"].items()
    }


def folder(path: Path, name: str, **config: Any) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(KNOWN[name]["config"] | config))
    save_file(weights(name), path / "diffusion_pytorch_model.safetensors")
    return path


def agrees(model: Autoencoder, name: str) -> None:
    latents = model.encode(torch.from_numpy(named_pictures(16)))
    sample = model.decode(model.settle(latents)[0]) * 2 - 1
    assert np.abs(latents.numpy() - RECORDED[f"{name}.latents"]).max() < 1e-5
    assert np.abs(sample.numpy() - RECORDED[f"{name}.sample"]).max() < 2e-5


@pytest.mark.parametrize(
    ("name", "act"), [("vq", "gelu"), ("vq-relu", "relu"), ("vq-mish", "mish")]
)
def test_the_activation_is_that_of_the_config(tmp_path: Path, name: str, act: str) -> None:
    agrees(load_autoencoder(folder(tmp_path / "vq", "vq", act_fn=act)), name)


def test_an_activation_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="act_fn: expected one of silu"):
        load_autoencoder(folder(tmp_path / "vq", "vq", act_fn="swiglu"))


def test_a_folder_that_holds_only_the_half_precision_variant() -> None:
    agrees(load_autoencoder(DATA / "kl"), "kl")


def test_a_pipeline_with_its_autoencoder_in_shards_of_a_variant() -> None:
    for source in ("pipeline", "pipeline/vqvae"):
        agrees(load_autoencoder(DATA / source), "pipeline")
    # It is known by the content of that part, wherever it stands.
    whole, part = (identify_autoencoder(DATA / each) for each in ("pipeline", "pipeline/vqvae"))
    assert whole == part != identify_autoencoder(DATA / "kl")


def test_shards_without_their_index(tmp_path: Path) -> None:
    for path in (DATA / "pipeline/vqvae").iterdir():
        if "index" not in path.name:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    agrees(load_autoencoder(tmp_path), "pipeline")
    (tmp_path / "diffusion_pytorch_model.fp16-00003-of-00004.safetensors").unlink()
    with pytest.raises(UserError, match="shard 3 of 4 is missing"):
        load_autoencoder(tmp_path)


def test_a_pipeline_without_an_autoencoder_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text('{"_class_name": "X", "unet": ["a", "b"]}')
    with pytest.raises(UserError, match=r"expected the part vae or .* found unet"):
        load_autoencoder(tmp_path)


def test_movq_and_back(tmp_path: Path) -> None:
    source = folder(tmp_path / "pipe" / "movq", "movq")
    model = load_autoencoder(tmp_path / "pipe")
    agrees(model, "movq")
    # What is written has the names that were read.
    save_autoencoder(model, tmp_path / "again")
    name = "diffusion_pytorch_model.safetensors"
    again, first = load_file(tmp_path / "again" / name), load_file(source / name)
    assert {key: t.shape for key, t in again.items()} == {key: t.shape for key, t in first.items()}
    agrees(load_autoencoder(tmp_path / "again"), "movq")


def test_a_gumbel_codebook_takes_the_most_probable_code(tmp_path: Path) -> None:
    noise = {"loss.discriminator.main.0.weight": torch.ones(2), "quantize.used": torch.ones(3)}
    torch.save({"state_dict": weights("gumbel") | noise, "epoch": 3}, tmp_path / "last.ckpt")
    model = load_autoencoder(tmp_path / "last.ckpt")
    agrees(model, "gumbel")
    latents = torch.from_numpy(RECORDED["gumbel.latents"]).requires_grad_(True)
    settled, codes = model.settle(latents)
    assert np.array_equal(codes.numpy(), RECORDED["gumbel.codes"])
    # The gradient is that of the mean code, and the generator can follow it.
    settled.square().sum().backward()
    assert latents.grad.abs().sum() > 0
    generator = generators.get("vqgan")(autoencoder=str(tmp_path / "last.ckpt"))
    assert torch.equal(generator.clamp(10 * latents), 10 * latents)


def test_the_first_stage_of_a_latent_diffusion_model(tmp_path: Path) -> None:
    whole = {f"first_stage_model.{name}": tensor for name, tensor in weights("ldm").items()}
    whole["model.diffusion_model.out.0.weight"] = torch.ones(3)
    whole["cond_stage_model.encoder.conv_in.weight"] = torch.ones(3)
    save_file(whole, tmp_path / "sd.safetensors")
    agrees(load_autoencoder(tmp_path / "sd.safetensors"), "ldm")
