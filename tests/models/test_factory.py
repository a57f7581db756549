"""Models given as a function and a file of weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import stockpot
from stockpot.datasets.load import load_dataset
from stockpot.errors import BadCheckpointError, UserError
from stockpot.models.load import identify, load_for, load_model

MODULE = """
import torch
from torch import nn

def make(width=4):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, width), nn.ReLU(), nn.Linear(width, 5))

def wrong():
    return "not a module"
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "nets.py"
    path.write_text(MODULE)
    return path


def weights(width: int = 4) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"1.weight": (width, 192), "1.bias": (width,), "3.weight": (5, width), "3.bias": (5,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.mark.parametrize("form", ["safetensors", "pt", "nested", "prefixed"])
def test_weights_are_found_in_every_usual_form(form: str, module: Path, tmp_path: Path) -> None:
    state = weights()
    path = tmp_path / ("w.safetensors" if form == "safetensors" else "w.pt")
    if form == "safetensors":
        save_file(state, path)
    elif form == "nested":
        torch.save({"state_dict": state, "epoch": 3}, path)
    elif form == "prefixed":
        torch.save({f"module.{name}": tensor for name, tensor in state.items()}, path)
    else:
        torch.save(state, path)
    model = load_model(f"{module}:make", weights=str(path), size=8, mean=(0, 0, 0), std=(1, 1, 1))
    pixels = torch.rand(2, 3, 8, 8)
    hidden = torch.relu(pixels.flatten(1) @ state["1.weight"].T + state["1.bias"])
    torch.testing.assert_close(model(pixels), hidden @ state["3.weight"].T + state["3.bias"])
    assert model.classes == ("0", "1", "2", "3", "4")


def test_what_does_not_fit_is_named(module: Path, tmp_path: Path) -> None:
    torch.save(weights(width=6), tmp_path / "w.pt")
    with pytest.raises(BadCheckpointError, match=r"1\.bias is \(6,\), the module has \(4,\)"):
        load_model(f"{module}:make", weights=str(tmp_path / "w.pt"), size=8)
    load_model(f"{module}:make", weights=str(tmp_path / "w.pt"), size=8, arguments={"width": 6})


def test_a_pickle_with_code_is_refused(module: Path, tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "w.pt")  # a whole module, not a state dict
    with pytest.raises(BadCheckpointError, match="holds Python objects"):
        load_model(f"{module}:make", weights=str(tmp_path / "w.pt"), size=8)


@pytest.mark.parametrize(
    ("suffix", "options", "words"),
    [
        (":mkae", {}, "has no 'mkae'"),
        (":wrong", {}, "expected a torch module"),
        (":make", {"weights": "none.pt"}, "no checkpoint at 'none.pt'"),
        (":make", {"classes": ("a", "b")}, "5 outputs, but 2 class names"),
        (":make", {"size": 9}, "does not take pictures of 9x9: .* size=N"),
        (":make", {"size": [8, 9]}, "does not take pictures of 8x9"),
        (":make", {"size": 0}, "size: expected a number or two, got 0"),
        (":make", {"resize": "all"}, "resize: expected a number of pixels, got 'all'"),
        (":make", {"std": (0, 1, 1)}, "std: expected three numbers to divide by"),
        (":make", {"mean": ("a", 1, 1)}, "mean .expected three numbers"),
        (":make", {"squash": "no"}, "squash: expected true or false, got 'no'"),
        (":make", {"interpolation": "cubic"}, "interpolation: expected one of .* got 'cubic'"),
        (":make", {"arguments": 3}, "arguments: expected names and values"),
        (
            ":make",
            {"arguments": {"wide": 3}},
            "unexpected keyword argument 'wide'. It takes: width",
        ),
    ],
)
def test_faults_are_answered_in_words(suffix: str, options: dict, words: str, module: Path) -> None:
    with pytest.raises(UserError, match=words):
        load_model(f"{module}{suffix}", **{"size": 8, **options})


def test_two_functions_around_the_same_weights_are_two_models(module: Path, tmp_path: Path) -> None:
    save_file(weights(), tmp_path / "w.safetensors")
    module.write_text(
        MODULE
        + "\ndef bent():\n    network = make()\n    network[2] = nn.GELU()\n    return network\n"
    )

    def known(name: str) -> set[str]:
        options = {"weights": str(tmp_path / "w.safetensors"), "size": 8}
        source = f"{module}:{name}"
        return {identify(source, options), load_model(source, **options).origin.fingerprint}

    straight, bent = known("make"), known("bent")
    assert len(straight) == len(bent) == 1
    assert straight != bent
    module.write_text(module.read_text().replace("GELU", "Tanh"))
    assert known("bent") != bent


@pytest.mark.parametrize(
    ("text", "words"), [("def make(:", "is not Python"), ("import nowhere", "No module .*nowhere")]
)
def test_a_file_that_cannot_be_imported_is_named(text: str, words: str, module: Path) -> None:
    module.write_text(text)
    with pytest.raises(UserError, match=rf"nets\.py .*{words}"):
        load_model(f"{module}:make", size=8)


@pytest.mark.parametrize("filled", [False, True])
def test_an_edited_function_is_another_model(filled: bool, tmp_path: Path) -> None:
    code = tmp_path / "nets.py"
    options: dict[str, object] = {"size": 8, "mean": (0, 0, 0), "std": (1, 1, 1)}
    if filled:
        torch.save(weights(), tmp_path / "w.pt")
        options["weights"] = str(tmp_path / "w.pt")
    seeded = MODULE.replace("def make(width=4):", "def make(width=4):\n    torch.manual_seed(0)")
    data = load_dataset("icons", limit=4)
    known, answers = [], []
    for text in (seeded, seeded, seeded.replace("nn.ReLU", "nn.Tanh")):
        code.write_text(text)
        known.append(identify(f"{code}:make", options))
        model = load_for(f"{code}:make", data, options=options, keep=True)
        answers.append(model(torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))))
    assert known[0] == known[1] != known[2]
    assert torch.equal(answers[0], answers[1])
    assert not torch.allclose(answers[0], answers[2])


def test_models_in_memory_are_told_apart_by_what_their_weights_do_not_tell(tmp_path: Path) -> None:
    data = load_dataset("icons", limit=40)

    def network(between: nn.Module) -> nn.Module:
        torch.manual_seed(0)
        flat = nn.Linear(3 * 8 * 8, 50)
        return nn.Sequential(nn.Flatten(), flat, between, nn.Linear(50, 50))

    for between, names in (
        (nn.ReLU(), data.classes),
        (nn.Tanh(), data.classes),
        (nn.Tanh(), data.classes[::-1]),
    ):
        model = load_model(network(between), size=8, classes=names)
        alone = stockpot.measure({"mine": model}, "clean", data=data)
        beside = stockpot.measure({"mine": model}, "clean", data=data, out=tmp_path)
        assert [score.value for score in beside[0].scores] == [s.value for s in alone[0].scores]
    assert len(list((tmp_path / "results").glob("*.json"))) == 3


def test_a_module_that_holds_nothing_is_measured() -> None:
    class Means(nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return pixels.mean((2, 3))

    reds = torch.zeros(4, 3, 8, 8)
    reds[:, 0] = 1
    model = load_model(Means(), size=8, classes=("red", "green", "blue"))
    assert [each.name for each in model.predict(reds)] == ["red"] * 4
