"""Signed folders: any changed byte is named, and the rules of a board are checked by code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import invoke
from pico import ReadsLabel, make_classifier, make_dataset
from stockpot.errors import UserError
from stockpot.measure.dynamic.board import rulings
from stockpot.measure.run import measure
from stockpot.results.schema import CellResult, Flag, Score
from stockpot.results.signing import canonical, new_key, sign, verify
from stockpot.results.store import load_results

pytest.importorskip("cryptography")


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    measure(make_classifier(ReadsLabel(4)), "clean", data=make_dataset(8), out=folder)
    (folder / "beside.csv").write_text("a,b\n1,2\n")
    key = tmp_path / "key.pem"
    public = new_key(key)
    assert key.stat().st_mode & 0o077 == 0
    assert sign(folder, key).key == public
    return folder


def test_a_signature_is_one_that_another_program_can_check(signed: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    document = json.loads((signed / "signature.json").read_text())
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(document["key"]))
    # RFC 8785 for text and whole numbers: sorted keys, no spaces.
    text = json.dumps(document["statement"], sort_keys=True, separators=(",", ":"))
    key.verify(bytes.fromhex(document["signature"]), text.encode())
    assert canonical({"b": 1, "a": ["é"]}) == '{"a":["é"],"b":1}'.encode()
    (signed / "results").rename(signed.parent / "bare")
    (signed / "signature.json").rename(signed.parent / "bare" / "signature.json")
    assert len(load_results(signed.parent / "bare")) == 1  # the signature is no result


def test_every_changed_byte_fails_in_one_line(signed: Path) -> None:
    assert verify(signed).files == 2
    for path in [*signed.rglob("*.json"), signed / "beside.csv"]:
        content = path.read_bytes()
        for place in range(0, len(content), max(1, len(content) // 7)):
            changed = bytearray(content)
            changed[place] ^= 1
            path.write_bytes(changed)
            with pytest.raises(UserError) as raised:
                verify(signed)
            assert "\n" not in str(raised.value), raised.value
        path.write_bytes(content)
        verify(signed)
    # A blank more is no other result, and still a changed byte.
    (result,) = (signed / "results").glob("*.json")
    result.write_bytes(result.read_bytes() + b" ")
    with pytest.raises(UserError, match=rf"{result.name} was changed after it was signed"):
        verify(signed)


def test_files_that_come_and_go_and_other_keys(signed: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="was signed by the key"):
        verify(signed, "00" * 32)
    (signed / "more.txt").write_text("more")
    with pytest.raises(UserError, match=r"more\.txt was added"):
        verify(signed)
    (signed / "more.txt").unlink()
    (signed / "beside.csv").unlink()
    with pytest.raises(UserError, match=r"beside\.csv is missing"):
        verify(signed)
    with pytest.raises(UserError, match="never overwritten"):
        new_key(tmp_path / "key.pem")
    inside = signed / "key.pem"
    new_key(inside)
    with pytest.raises(UserError, match="would go out with it"):
        sign(signed, inside)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="is not signed"):
        verify(tmp_path / "empty")


def test_the_commands(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    quick = {"generator": "colour", "oracle": "none", "budget": 2, "pictures": 0, "hiding": "flag"}
    measure(make_classifier(ReadsLabel(4)), {"dynamic": quick}, data=make_dataset(8), out=folder)
    assert invoke("verify", folder).exit_code == 1
    done = invoke("sign", folder, "--key", tmp_path / "k.pem", "--new-key")
    assert done.exit_code == 0, done.output
    shown = invoke("verify", folder)
    assert shown.exit_code == 0
    assert "unchanged: " in shown.output
    assert "toy-model: hidden images holds" in shown.output
    assert "toy-model: hidden generator broken: the default is public" in shown.output
    assert invoke("verify", folder, "--board").exit_code == 1


def _cell(measure_name: str, fmr: tuple[float, float, float], **changes: Any) -> CellResult:
    network = make_classifier(ReadsLabel(4))
    (made,) = measure(network, {"clean": {"per_class": False}}, data=make_dataset(8))
    own = {"autoencoder": "mine@0123456789abcdef"}
    params = {"generator_params": own, "oracle_params": {"model": "judge@0123456789abcdef"}}
    params |= changes.pop("params", {})
    scores = [
        Score(metric="fmr", value=fmr[1], n=8, ci_low=fmr[0], ci_high=fmr[2]),
        Score(metric="validation_rate", value=0.8, n=8, ci_low=0.7, ci_high=0.9),
    ]
    key = made.key.model_copy(update={"measure": measure_name, "params": params})
    return made.model_copy(update={"key": key, "scores": scores, **changes})


def test_each_rule_of_a_board_can_be_broken() -> None:
    other = _cell("published", (0.6, 0.7, 0.8), convention="made against x, not against this model")

    def broken(*cells: CellResult, **options: Any) -> set[str]:
        return {each.rule for each in rulings(cells, **options) if not each.holds}

    good = (0.4, 0.5, 0.65)
    cell = _cell("dynamic", good)
    assert broken(cell, other) == set()
    assert broken(cell) == {"transfer check"}
    # Its own images are easier for it than a stranger's: its search was misled.
    assert broken(_cell("dynamic", (0.9, 1.0, 1.1)), other) == {"transfer check"}
    assert broken(cell, other, min_validity=0.75) == {"minimum validity"}
    flag = Flag(name="zero_gradients", count=3, of=8)
    assert broken(_cell("dynamic", good, flags=[flag]), other) == {"no sign of hiding"}
    data = cell.data.model_copy(update={"name": "icons"})
    assert broken(_cell("dynamic", good, data=data), other) == {"hidden images"}
    plain = _cell("dynamic", good, params={"generator_params": None})
    assert broken(plain, other) == {"hidden generator"}
    for public in ("openai/clip", "openai/clip@main", "openai/clip@0123456789abcdef"):
        hub = _cell("dynamic", good, params={"oracle_params": {"model": public}})
        assert broken(hub, other) == {"hidden oracle"}
