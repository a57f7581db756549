"""Training an autoencoder: the codebook stays alive, and reconstructions get better."""

from __future__ import annotations

from dataclasses import replace

import torch

from pico import make_dataset
from stockpot.dynamic.training.codebook import CodebookKeeper
from stockpot.dynamic.training.corpus import Corpus, Source, gather
from stockpot.dynamic.training.fit import Plan, fit
from stockpot.dynamic.training.losses import FeatureDistance, balance, critic_loss, divergence
from stockpot.dynamic.training.quality import quality
from stockpot.models.autoencoder.coders import Architecture
from stockpot.models.autoencoder.model import Autoencoder
from stockpot.models.autoencoder.quantiser import Quantiser
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

SHAPE = Architecture(channels=8, multipliers=(1, 2), groups=4, latent_channels=8, codes=32)


def seeded(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


def blobs(count: int = 48, side: int = 8) -> torch.Tensor:
    """Pictures of one coloured disc on another colour."""
    generator = torch.Generator().manual_seed(0)
    colours = torch.randint(0, 256, (2, count, 3, 1, 1), generator=generator)
    grid = torch.arange(side) - side / 2
    disc = (grid[:, None].square() + grid.square()) < (side / 3) ** 2
    return torch.where(disc, colours[0], colours[1]).to(torch.uint8)


def corpus(pixels: torch.Tensor) -> Corpus:
    return Corpus([Source("blobs", pixels, 1.0)], torch.device("cpu"))


def perception() -> FeatureDistance:
    side = ImageSize(16, 16)
    settings = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1]}
    return FeatureDistance(
        new_huggingface(
            "small_resnet", classes=("a", "b"), preprocess=Preprocess(side, side), seed=0,
            layer_type="basic", **settings,
        )
    )  # fmt: skip


def test_training_brings_pictures_nearer() -> None:
    pixels = blobs()
    model = seeded(lambda: Autoencoder(SHAPE))
    before = quality(model, pixels)
    seen = fit(model, corpus(pixels), perception(), Plan(steps=25, batch=12, lr=5e-3, fooling=0))
    after = quality(model, pixels)
    assert seen["steps"] == 25
    assert after.l1 < 0.95 * before.l1
    assert after.psnr > before.psnr + 0.5
    # The codebook is alive: nearly all of its 32 codes are used.
    assert after.codes > 16


def test_a_seed_fixes_the_training_with_its_critic() -> None:
    runs = []
    for _ in range(2):
        model = seeded(lambda: Autoencoder(SHAPE))
        torch.rand(3)  # the global generator must not matter
        seen = fit(model, corpus(blobs()), perception(), Plan(steps=4, batch=8, fooling_from=0.5))
        runs.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])
    assert seen["steps"] == 4


def test_codes_follow_their_cells_and_idle_ones_start_anew() -> None:
    quantiser = Quantiser(4, 2)
    with torch.no_grad():
        quantiser.embedding.weight.copy_(torch.tensor([[0.0, 0], [1, 1], [50, 50], [60, 60]]))
    keeper = CodebookKeeper(quantiser, decay=0.5)
    generator = torch.Generator().manual_seed(0)
    cells = torch.tensor([[0.2, 0.0], [0.0, 0.2], [1.2, 1.0], [1.0, 1.2]])
    latents = cells.T.reshape(1, 2, 2, 2)
    for _ in range(40):
        keeper.update(latents, quantiser.codes(latents), generator)
    chosen = quantiser.look_up(quantiser.codes(latents))
    # Two codes were out of reach; every cell now has one at hand.
    assert (chosen - latents).abs().max() < 0.15
    assert quantiser.embedding.weight.max() < 5
    assert keeper.usage() > 0.4


def test_the_critics_loss_by_hand() -> None:
    real, made = torch.tensor([2.0, 0.5]), torch.tensor([-2.0, 0.0])
    # Hinge: (0 + 0.5) / 2 for the real, (0 + 1) / 2 for the made; then their mean.
    assert critic_loss(real, made).item() == 0.375


def test_balance_equalises_the_pulls() -> None:
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    factor = balance((3 * weight).sum(), (0.5 * weight).sum(), weight)
    assert abs(factor.item() - 6) < 0.01


def test_pictures_are_padded_or_resized_to_the_side() -> None:
    data = make_dataset(4, size=28)
    padded = gather(data, 32)
    assert padded.shape == (4, 3, 32, 32)
    original = next(data.batches(4)).images
    assert torch.equal(padded[:, :, 2:30, 2:30], original)
    assert gather(make_dataset(4, size=64), 32).shape == (4, 3, 32, 32)


def test_a_gaussian_latent_is_trained_too() -> None:
    pixels = blobs()
    model = seeded(lambda: Autoencoder(replace(SHAPE, codes=0)))
    before = quality(model, pixels)
    seen = fit(model, corpus(pixels), None, Plan(steps=20, batch=6, lr=5e-3, fooling=0))
    after = quality(model, pixels)
    assert after.l1 < 0.95 * before.l1
    assert "codebook use" not in seen
    # A heavy divergence presses the latents onto the standard normal distribution.
    plan = Plan(steps=20, batch=6, lr=1e-2, fooling=0, divergence=10.0)
    fit(model, corpus(pixels), None, plan)
    mean, spread = model.distribution(pixels[:12].float() / 255)
    assert mean.detach().abs().mean() < 0.2
    assert (spread.detach() - 1).abs().mean() < 0.2


def test_divergence_is_that_of_two_normal_distributions() -> None:
    mean, spread = torch.tensor([0.5, -2.0]), torch.tensor([0.7, 1.5])
    other = torch.distributions.Normal(0.0, 1.0)
    expected = torch.distributions.kl_divergence(torch.distributions.Normal(mean, spread), other)
    assert torch.isclose(divergence(mean, spread), expected.mean())


def test_pictures_are_mirrored_only_where_that_is_wanted() -> None:
    half = torch.zeros(1, 3, 4, 4, dtype=torch.uint8)
    half[..., :2] = 255
    for wanted in (True, False):
        made = Corpus([Source("half", half, 1.0)], torch.device("cpu"), mirrored=wanted)
        drawn = made.sample(4, 32, torch.Generator().manual_seed(0))
        assert (drawn[:, 0, 0, 0] == 0).any() == wanted
