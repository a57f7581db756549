"""The pieces of the attack room against closed forms."""

from __future__ import annotations

import copy
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stockpot.attack.checks.outputs import is_softmax
from stockpot.attack.draws import normal, signs, uniform
from stockpot.attack.losses import divergence, dlr, margin, targeted_dlr
from stockpot.attack.nested import attack_all
from stockpot.attack.run import attack
from stockpot.attack.threat import L1, L2, Linf, parse_threats
from stockpot.errors import BadParameterError, UserError
from stockpot.models.forward.ends import ConvReLU
from stockpot.models.forward.folding import folded, renewed_copy
from stockpot.models.forward.frozen_graph import frozen
from stockpot.models.forward.joining import with_ends


def linear(classes: int = 2, seed: int = 0, size: int = 4) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(3 * size * size, classes)
    layer.weight.data = torch.randn(layer.weight.shape, generator=generator)
    layer.bias.data = -layer.weight.data.sum(1) / 2  # the grey image lies between the classes
    return nn.Sequential(nn.Flatten(), layer)


def pictures(n: int = 40, size: int = 4) -> torch.Tensor:
    return 0.3 + 0.4 * torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("norm", "eps", "dual"), [("linf", 0.02, 1.0), ("l2", 0.1, 2.0), ("l1", 0.25, torch.inf)]
)
@pytest.mark.parametrize("loss", ["ce", "margin", "dlr"])
def test_a_linear_model_falls_exactly_where_its_distance_says(norm, eps, dual, loss) -> None:
    # Far from the box, the distance to the boundary is |w . x + b| / ||w||_dual.
    model, images = linear(), pictures()
    with torch.no_grad():
        logits = model(images)
    labels = logits.argmax(dim=1)
    weight = model[1].weight[0] - model[1].weight[1]
    distance = (logits[:, 0] - logits[:, 1]).abs() / weight.norm(p=dual)
    result = attack(model, images, labels, norm=norm, eps=eps, loss=loss, steps=40)
    # In l_1 the best change moves one value; sparse steps come near it, not onto it.
    clear = (distance - eps).abs() > (0.1 if norm == "l1" else 0.02) * eps
    assert clear.sum() > 25
    assert 3 < int((distance[clear] > eps).sum()) < int(clear.sum()) - 3
    assert torch.equal(result.robust[clear], (distance > eps)[clear])
    nearest = attack(model, images, labels, norm=norm, eps=eps, method="fab", steps=20)
    assert torch.equal(nearest.robust[clear], (distance > eps)[clear])


def test_losses_by_hand() -> None:
    logits = torch.tensor([[4.0, 1.0, 3.0, 0.0], [0.0, 2.0, 5.0, 1.0]])
    labels, targets = torch.tensor([0, 1]), torch.tensor([2, 0])
    assert margin(logits, labels).tolist() == [-1.0, 3.0]
    assert dlr(logits, labels).tolist() == pytest.approx([-1 / 3, 3 / 4])
    found = targeted_dlr(logits, labels, targets).tolist()
    assert found == pytest.approx([-1 / (4 - 0.5), -2 / (5 - 0.5)])
    soft = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.25] * 4])
    expected = (soft * (soft.clamp(min=1e-30).log() - logits.log_softmax(1))).sum(1)
    torch.testing.assert_close(divergence(logits, labels, soft), expected)


@pytest.mark.parametrize("classes", [2, 3])
def test_few_classes_fall_back_to_the_margin(classes: int) -> None:
    model, images = linear(classes), pictures()
    labels = model(images).argmax(dim=1)
    for loss in ("dlr", "dlr_targeted"):
        result = attack(model, images, labels, loss=loss, eps="8/255", steps=10)
        plain = attack(model, images, labels, loss="margin", eps="8/255", steps=10)
        assert torch.equal(result.robust, plain.robust)
        assert result.flags.few_classes == (classes < (3 if loss == "dlr" else 4))


def test_soft_labels_are_attacked_by_divergence() -> None:
    model, images = linear(4), pictures()
    hard = model(images).argmax(dim=1)
    soft = F.one_hot(hard, 4).float() * 0.9 + 0.025
    result = attack(model, images, soft, loss="kl", eps=0.01, goal="loss")
    before = divergence(model(images), hard, soft)
    assert (result.loss > before).all()
    with pytest.raises(BadParameterError, match="soft labels"):
        attack(model, images, hard, loss="kl")


@pytest.mark.parametrize("method", ["apgd", "square"])
def test_outputs_that_are_no_logits_are_refused(method: str) -> None:
    # One row of outputs for all images would be compared with every label.
    model, images = linear(4), pictures(6)
    labels = model(images).argmax(dim=1)

    class Output(NamedTuple):
        logits: torch.Tensor

    for wrong, said in (
        (lambda pixels: model(pixels)[:1], r"got float32 of shape \(1, 4\) for 6 images"),
        (lambda pixels: model(pixels).long(), "got int64 of shape"),
        (lambda pixels: model(pixels).detach().numpy(), "got ndarray"),
        (lambda pixels: Output(model(pixels)), r"got Output.*model\(pixels\)\.logits"),
    ):
        with pytest.raises(BadParameterError, match=said):
            attack(wrong, images, labels, method=method, steps=2)
    for labels_given in (labels.float(), labels[:, None], labels - 4, labels + 4):
        with pytest.raises(BadParameterError, match=r"class numbers|labels from 0"):
            attack(model, images, labels_given, method=method, steps=2)


def test_draws_belong_to_the_image() -> None:
    seeds = torch.tensor([5, 900, -3])
    both = uniform(seeds, (1000,), 1, 2)
    assert torch.equal(both[1:2], uniform(seeds[1:2], (1000,), 1, 2))
    assert not torch.equal(both, uniform(seeds, (1000,), 1, 3))
    many = uniform(torch.arange(50), (2000,))
    assert abs(float(many.mean()) - 0.5) < 0.005
    assert abs(float(many.var()) - 1 / 12) < 0.002
    assert abs(float(torch.corrcoef(many)[0, 1:].mean())) < 0.02
    bell = normal(torch.arange(50), (2000,))
    assert abs(float(bell.mean())) < 0.02
    assert abs(float(bell.std()) - 1) < 0.02
    assert set(signs(seeds, (500,)).unique().tolist()) == {-1.0, 1.0}


def test_threats_are_values() -> None:
    union = Linf("8/255") | L2(0.5) | L1(12)
    assert str(union) == "linf 8/255 | l2 0.5 | l1 12"
    assert union == parse_threats("linf,l2,l1", "8/255,0.5,12")
    assert Linf("8/255") | Linf("8/255") == parse_threats("linf", "8/255")
    assert Linf("8/255").radius == pytest.approx(8 / 255)
    with pytest.raises(UserError, match="linf, l2 or l1"):
        parse_threats("l3", "1")
    with pytest.raises(UserError, match="at least 0"):
        L2(-1)


def test_a_union_is_no_more_robust_than_its_members() -> None:
    model, images = linear(3), pictures()
    labels = model(images).argmax(dim=1)
    results, union = attack_all(model, images, labels, Linf(0.02) | L2(0.1) | L1(0.3), steps=10)
    for result in results.values():
        assert not (union & ~result.robust).any()
    assert torch.equal(union, torch.stack([r.robust for r in results.values()]).all(dim=0))


def test_what_fell_in_a_ball_is_not_attacked_in_a_larger_one() -> None:
    model, images = linear(3), pictures()
    labels = model(images).argmax(dim=1)
    large, small = Linf(0.05), Linf(0.01)
    nested, union = attack_all(model, images, labels, large | small, steps=3, seed=5)
    assert list(nested) == [large, small]
    fell = ~nested[small].robust
    assert 0 < fell.sum() < 40
    assert torch.equal(nested[large].images[fell], nested[small].images[fell])
    assert torch.equal(nested[large].queries == 0, fell)
    alone = attack(model, images, labels, eps=0.05, steps=3, seed=5)
    assert torch.equal(nested[large].images[~fell], alone.images[~fell])
    assert torch.equal(union, nested[small].robust & alone.robust)
    # Where the highest loss is asked for, each ball is searched for every image.
    highest, _ = attack_all(model, images, labels, large | small, steps=3, goal="loss")
    assert (highest[large].loss > highest[small].loss).all()


def test_flags_are_raised() -> None:
    images = pictures()
    model = linear(3)
    labels = model(images).argmax(dim=1)
    assert attack(model, images, labels, steps=2).flags.warnings() == ()

    class Noisy(nn.Module):
        generator = torch.Generator().manual_seed(0)

        def forward(self, pixels):
            return model(pixels + 0.1 * torch.randn(pixels.shape, generator=self.generator))

    assert attack(Noisy(), images, labels, steps=2).flags.randomised
    assert attack(lambda x: model(x).softmax(1), images, labels, steps=2).flags.softmax
    assert not is_softmax(model(images))

    class Stairs(nn.Module):
        def forward(self, pixels):
            return model((pixels * 8).round() / 8)  # rounding has no slope

    stairs = Stairs()
    seen = stairs(images).argmax(dim=1)
    result = attack(stairs, images, seen, method="autoattack", eps=0.2, steps=5, queries=200)
    assert result.flags.zero_gradients > 0
    assert result.flags.square_beats_gradients > 0
    assert list(result.stages) == ["apgd-ce", "apgd-t", "fab-t", "square"]


def test_expectation_over_draws_averages_gradients() -> None:
    model, images = linear(3), pictures(8)
    labels = model(images).argmax(dim=1)
    once = attack(model, images, labels, steps=5)
    thrice = attack(model, images, labels, steps=5, eot=3)
    assert torch.equal(once.robust, thrice.robust)
    assert torch.equal(thrice.queries, 3 * once.queries)
    rand = attack(model, images, labels, method="autoattack", version="rand", steps=3, eot=2)
    assert list(rand.stages) == ["apgd-ce", "apgd-dlr"]


def test_faster_forward_passes_decide_alike() -> None:
    torch_model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4)
    ).eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in torch_model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    torch_model[1].running_mean = torch.randn(8, generator=generator)
    torch_model[1].running_var = torch.rand(8, generator=generator) + 0.5
    images = pictures()
    labels = torch_model(images).argmax(dim=1)
    twin = folded(torch_model, images)
    assert isinstance(twin[1], nn.Identity)
    torch.testing.assert_close(twin(images), torch_model(images), rtol=1e-4, atol=1e-4)
    for options in ({"forward": "folded"}, {"precision": "bf16"}):
        result = attack(torch_model, images, labels, eps=0.02, steps=10, **options)
        with torch.no_grad():
            right = torch_model(result.images).argmax(dim=1) == labels
        assert torch.equal(right, result.robust)  # decided by the model itself


def test_convolutions_that_cut_at_zero_are_the_same_network() -> None:
    generator = torch.Generator().manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3, groups=2),
        nn.ReLU(), nn.Conv2d(8, 4, 1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / 3
    images = pictures().requires_grad_()
    labels = torch.arange(40) % 4
    expected = model(images)
    (slope,) = torch.autograd.grad(F.cross_entropy(expected, labels), images)
    joined = with_ends(copy.deepcopy(model), images.detach())
    assert [type(module) for module in joined[:5]] == [
        ConvReLU, nn.Identity, ConvReLU, nn.Identity, nn.Conv2d,
    ]  # fmt: skip
    found = joined(images)
    torch.testing.assert_close(found, expected)
    (other,) = torch.autograd.grad(F.cross_entropy(found, labels), images)
    torch.testing.assert_close(other, slope)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.relu = nn.Conv2d(3, 4, 1), nn.ReLU()

        def forward(self, pixels):
            seen = self.conv(pixels)
            return (seen + self.relu(seen)).mean(dim=(2, 3))

    twice = Twice()
    twice.conv.weight.data = torch.randn(4, 3, 1, 1, generator=generator)
    twice.conv.bias.data.fill_(-0.1)
    before = twice(pictures())
    assert torch.equal(with_ends(twice, pictures())(pictures()), before)
    assert type(twice.conv) is nn.Conv2d


def test_folding_refuses_what_it_would_change() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, pixels):
            seen = self.conv(pixels)
            return (seen + self.norm(seen)).mean(dim=(2, 3))

    model = Skip().eval()
    model.norm.running_mean += 1
    assert folded(model, pictures()) is model


def test_work_saved_is_counted() -> None:
    model, images = linear(3), pictures()
    labels = model(images).argmax(dim=1)
    calls = 0

    def counted(pixels):
        nonlocal calls
        calls += len(pixels)
        return model(pixels)

    result = attack(counted, images, labels, eps=0.05, steps=20, check=False)
    assert int(result.queries.sum()) == calls
    assert result.saved == int(result.correct.sum()) * 21 - (calls - len(images))
    assert result.saved > 0


def test_modes_and_gradients_of_the_model_are_left_alone() -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(48), nn.Dropout(0.5), nn.Linear(48, 3))
    model.train()
    model[1].eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    attack(model, pictures(), torch.zeros(40, dtype=torch.long), steps=3)
    assert [module.training for module in model] == [True, False, True, True]
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_errors_say_what_to_do() -> None:
    model, images = linear(3), pictures()
    labels = torch.zeros(40, dtype=torch.long)
    with pytest.raises(UserError, match="Normalisation belongs inside the model"):
        attack(model, images * 3, labels)
    with pytest.raises(UserError, match="got values from nan to nan"):
        attack(model, images * torch.nan, labels)
    with pytest.raises(UserError, match="Did you mean apgd"):
        attack(model, images, labels, method="apdg")
    with pytest.raises(UserError, match="fraction such as 8/255"):
        attack(model, images, labels, eps="eight")
    with pytest.raises(UserError, match="method='square'"):
        attack(lambda x: model(x.detach()).detach(), images, model(images).argmax(1))
    with pytest.raises(UserError, match="unknown parameter 'stepsize'"):
        attack(model, images, labels, stepsize=3)


def test_a_twin_follows_the_model_it_was_made_of() -> None:
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1),
        nn.BatchNorm2d(4, affine=False), nn.Flatten(), nn.LazyLinear(4),
    )  # fmt: skip
    images = pictures()
    model(images)
    for _ in range(3):
        for parameter in model.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator)
        model.train()(images)  # moves the running statistics
        model.eval()
        twin = renewed_copy(model, images, torch.float32)
        assert twin is not model
        assert not any(isinstance(module, nn.BatchNorm2d) for module in twin.modules())
        torch.testing.assert_close(twin(images), model(images), rtol=1e-4, atol=1e-4)
    again = renewed_copy(model, images, torch.float32)
    assert again is twin  # renewed in place, not made anew
    model[1] = nn.BatchNorm2d(8).eval()
    other = renewed_copy(model, images, torch.float32)
    assert other is not twin
    torch.testing.assert_close(other(images), model(images), rtol=1e-4, atol=1e-4)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, 4))
    assert renewed_copy(plain, images, torch.float32) is plain


def test_a_frozen_graph_says_the_same_or_is_not_used() -> None:
    images = pictures()
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4)).eval()
    graph = frozen(network, images)
    assert graph is not network
    for size in (1, 7, 40):
        with torch.no_grad():
            seen = graph(images[:size])
            torch.testing.assert_close(seen, network(images[:size]), rtol=1e-4, atol=1e-4)

    class AsksForSize(nn.Module):
        def forward(self, pixels):
            return network(pixels) * len(pixels)  # a trace would take the size for a constant

    asks = AsksForSize()
    assert frozen(asks, images) is asks
    assert frozen(lambda pixels: network(pixels), images).__name__ == "<lambda>"


def test_a_seed_that_no_generator_takes_is_refused() -> None:
    for seed in (-1, 2**70):
        with pytest.raises(UserError, match="seed: expected a whole number"):
            attack(lambda pixels: pixels.flatten(1), torch.rand(2, 3, 2, 2), torch.zeros(2).long(),
                   seed=seed)  # fmt: skip
