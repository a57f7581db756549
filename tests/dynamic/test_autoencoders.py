"""Published shapes of autoencoders: both layouts load, and give the same pictures back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from stockpot.dynamic.generators import generators
from stockpot.errors import UserError
from stockpot.models.autoencoder.coders import Architecture
from stockpot.models.autoencoder.files import load_autoencoder, save_autoencoder
from stockpot.models.autoencoder.keys import to_diffusers, to_ours
from stockpot.models.autoencoder.model import Autoencoder

PICO = Architecture(
    channels=32, multipliers=(1, 2), groups=32, latent_channels=4, code_size=3, codes=16,
    attention=(1,), blocks=2,
)  # fmt: skip


def pico(shape: Architecture = PICO) -> Autoencoder:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Autoencoder(shape).eval()


def pictures(side: int = 16) -> torch.Tensor:
    return torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("codes", [16, 0])
def test_both_layouts_reconstruct_identically(tmp_path: Path, codes: int) -> None:
    model = pico(Architecture(**{**PICO.to_dict(), "codes": codes}))
    extra = {"loss.discriminator.main.0.weight": torch.ones(3)}
    file = tmp_path / "last.ckpt"
    torch.save({"state_dict": model.state_dict() | extra, "epoch": 3}, file)
    save_autoencoder(model, tmp_path / "folder")
    first, second = (load_autoencoder(path)(pictures()) for path in (file, tmp_path / "folder"))
    assert torch.equal(first, second)
    assert torch.allclose(first, model(pictures()), atol=1e-5)


def test_a_folder_has_the_names_that_diffusers_writes(tmp_path: Path) -> None:
    # Names as `VQModel.save_pretrained` of diffusers 0.35 writes them for this architecture.
    save_autoencoder(pico(), tmp_path)
    names = set(load_file(tmp_path / "diffusion_pytorch_model.safetensors"))
    assert {
        "encoder.conv_in.weight",
        "encoder.down_blocks.0.resnets.1.conv2.bias",
        "encoder.down_blocks.0.downsamplers.0.conv.weight",
        "encoder.down_blocks.1.resnets.0.conv_shortcut.weight",
        "encoder.down_blocks.1.attentions.0.to_q.weight",
        "encoder.mid_block.attentions.0.to_out.0.bias",
        "encoder.mid_block.attentions.0.group_norm.weight",
        "encoder.mid_block.resnets.1.norm2.weight",
        "encoder.conv_norm_out.weight",
        "decoder.up_blocks.0.resnets.2.conv1.weight",
        "decoder.up_blocks.0.attentions.2.to_v.weight",
        "decoder.up_blocks.0.upsamplers.0.conv.weight",
        "decoder.up_blocks.1.resnets.0.conv_shortcut.weight",
        "quantize.embedding.weight",
        "quant_conv.weight",
        "post_quant_conv.bias",
    } <= names
    assert not [name for name in names if ".block" in name.replace("_block", "")]
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["_class_name"] == "VQModel"
    assert config["up_block_types"] == ["AttnUpDecoderBlock2D", "UpDecoderBlock2D"]


def test_names_before_2023_are_understood() -> None:
    model = pico()
    old = {
        name.replace("to_out.0", "proj_attn")
        .replace("to_q", "query")
        .replace("to_k", "key")
        .replace("to_v", "value"): tensor
        for name, tensor in to_diffusers(model.state_dict()).items()
    }
    ours = to_ours(old)
    assert ours.keys() == model.state_dict().keys()
    assert all(torch.equal(ours[name], tensor) for name, tensor in model.state_dict().items())


def test_half_precision_is_read_back_in_full(tmp_path: Path) -> None:
    save_autoencoder(pico(), tmp_path, half=True)
    loaded = load_autoencoder(tmp_path)
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    assert torch.isfinite(loaded(pictures())).all()


def test_any_size_that_the_stride_divides() -> None:
    model = pico()
    for height, width in ((16, 16), (8, 12), (28, 28)):
        assert model(torch.rand(1, 3, height, width)).shape == (1, 3, height, width)
    with pytest.raises(UserError, match="multiples of 2"):
        model(torch.rand(1, 3, 15, 16))
    with pytest.raises(UserError, match="3 channels"):
        model(torch.rand(1, 1, 16, 16))


def test_the_gradient_passes_straight_through_the_codes() -> None:
    model = pico()
    latents = model.encode(pictures()).detach().requires_grad_(True)
    settled, codes = model.settle(latents)
    weights = torch.rand_like(settled)
    (settled * weights).sum().backward()
    assert torch.equal(latents.grad, weights)
    # Each cell is its nearest code: no other is nearer.
    book = model.quantize.embedding.weight
    cells = latents.detach().permute(0, 2, 3, 1).reshape(-1, 3)
    assert torch.equal(torch.cdist(cells, book).argmin(dim=1), codes.flatten())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: "no-such", "no autoencoder at 'no-such'"),
        (lambda path: str(path / "absent.ckpt"), "no autoencoder at"),
        (lambda path: _other(path), "VQModel or AutoencoderKL"),
        (lambda path: _classifier(path), "not an autoencoder of the VQGAN family"),
    ],
)
def test_wrong_files_are_told_apart(tmp_path: Path, make, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_autoencoder(make(tmp_path))


def test_a_generator_wants_its_own_kind(tmp_path: Path) -> None:
    save_autoencoder(pico(), tmp_path / "vq")
    save_autoencoder(pico(Architecture(**{**PICO.to_dict(), "codes": 0})), tmp_path / "kl")
    assert generators.get("vqgan")(autoencoder=str(tmp_path / "vq")).name == "vqgan"
    assert generators.get("kl")(autoencoder=str(tmp_path / "kl")).name == "kl"
    with pytest.raises(UserError, match="Use the generator kl"):
        generators.get("vqgan")(autoencoder=str(tmp_path / "kl"))
    with pytest.raises(UserError, match="Use the generator vqgan"):
        generators.get("kl")(autoencoder=str(tmp_path / "vq"))


def _other(path: Path) -> str:
    (path / "config.json").write_text('{"_class_name": "UNet2DModel"}')
    return str(path)


def _classifier(path: Path) -> str:
    save_file({"fc.weight": torch.ones(2, 2)}, path / "model.safetensors")
    return str(path / "model.safetensors")


def test_mixed_precision_finds_the_same_codes_and_nearly_the_same_pictures() -> None:
    model = pico(Architecture(**{**PICO.to_dict(), "codes": 4096}))
    latents = model.encode(pictures(32))
    # Cells that lie much nearer to their code than the codes lie to each other.
    exact = model.quantize.look_up(model.quantize.codes(latents))
    near = exact + 0.01 * (latents - exact)
    with torch.autocast("cpu", torch.bfloat16):
        settled, codes = model.settle(near)
        pixels = model.decode(settled)
    assert torch.equal(codes, model.quantize.codes(near))
    assert torch.equal(codes, model.quantize.codes(latents))
    assert (pixels - model.decode(exact)).abs().max() < 0.05
