"""Results in other people's formats, read back by the programs that they are for."""

from __future__ import annotations

import csv
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import yaml

from hand_made import clean_cell
from stockpot.errors import UserError
from stockpot.report.figures import write_figures
from stockpot.results import Results
from stockpot.results.exports import export
from stockpot.results.exports.push import push
from stockpot.results.schema import CellResult, Score
from stockpot.results.store import ResultStore, load_results

# Fields of `ModelInfo` in robustbench/utils.py, which every entry of its boards has.
MODEL_INFO = {
    "link", "name", "authors", "additional_data", "number_forward_passes", "dataset", "venue",
    "architecture", "eps", "clean_acc", "reported", "corruptions_acc", "corruptions_acc_3d",
    "corruptions_mce", "corruptions_mce_3d", "autoattack_acc", "footnote",
}  # fmt: skip


def with_scores(measure: str, convention: str, *scores: Score, model: str = "a") -> CellResult:
    cell = clean_cell(model, "toy", np.array([1, 1, 1, 0], bool))
    key = cell.key.model_copy(update={"measure": measure})
    return cell.model_copy(update={"key": key, "scores": list(scores), "convention": convention})


def attacked(eps: str, value: float, convention: str) -> CellResult:
    condition: dict[str, Any] = {"norm": "linf", "eps": eps}
    score = Score(metric="robust_accuracy", value=value, n=4, condition=condition)
    return with_scores("adversarial", convention, score)


STANDARD = "adversarial:robustbench; method=autoattack; pixels in [0, 1]"
CLEAN = clean_cell("a", "toy", np.array([1, 1, 1, 0], bool))


def test_robustbench_gets_what_its_boards_hold(tmp_path: Path) -> None:
    mean = Score(metric="mean_corruption_accuracy", value=0.5, n=4)
    mce = Score(metric="mce", value=0.8125, n=4, condition={"baseline": "alexnet-constants"})
    cells = [
        CLEAN,
        attacked("8/255", 0.25, STANDARD),
        with_scores("corruption", "mce:alexnet-constants", mean, mce),
    ]
    paths = export(cells, "robustbench", tmp_path)
    entries = {path.parent.name: json.loads(path.read_text()) for path in paths}
    assert set(entries) == {"Linf", "corruptions"}
    assert all(entry.keys() <= MODEL_INFO for entry in entries.values())
    assert entries["Linf"]["autoattack_acc"] == "25.00"
    assert entries["Linf"]["eps"] == "8/255"
    assert entries["corruptions"]["corruptions_acc"] == "50.00"
    assert entries["corruptions"]["corruptions_mce"] == "81.25"  # percents, as theirs


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (attacked("8/255", 0.5, "adversarial:custom; method=pgd"), "not AutoAttack"),
        (
            with_scores(
                "corruption",
                "mce:none:2-of-15x2",
                Score(metric="mean_corruption_accuracy", value=0.5, n=4),
            ),
            "not all of ImageNet-C",
        ),
    ],
)
def test_other_numbers_are_not_called_theirs(tmp_path: Path, other: CellResult, why: str) -> None:
    with pytest.raises(UserError, match=why):
        export([CLEAN, other], "robustbench", tmp_path)


def test_two_radii_do_not_overwrite_each_other(tmp_path: Path) -> None:
    cells = [CLEAN, attacked("8/255", 0.25, STANDARD), attacked("4/255", 0.5, STANDARD)]
    with pytest.raises(UserError, match="eps 8/255 and 4/255"):
        export(cells, "robustbench", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format", ["lm-eval", "eval-results", "model-card"])
def test_names_lead_nowhere_else(tmp_path: Path, format: str) -> None:
    cell = clean_cell("../../outside", "a/../../b", np.array([1, 0], bool))
    for path in export([cell], format, tmp_path / "in"):
        assert (tmp_path / "in").resolve() in path.resolve().parents


@pytest.mark.parametrize("format", ["lm-eval", "eval-results", "model-card", "fusionbench"])
def test_names_that_would_be_one_file_are_several(tmp_path: Path, format: str) -> None:
    names = ["a/b", "a:b", "A:b", "plain", "x" * 300, "x" * 301]
    cells = [clean_cell(name, "d", np.arange(9) < place) for place, name in enumerate(names)]
    files = export(cells, format, tmp_path)
    assert len({str(file).casefold() for file in files if file.is_file()}) == len(names)
    assert "plain" in {file.relative_to(tmp_path).parts[0].split(".")[0] for file in files}


def test_parquet_and_frame_hold_what_the_csv_holds(tmp_path: Path) -> None:
    from pyarrow import parquet

    cells = Results([attacked("8/255", 0.25, STANDARD), CLEAN])
    (table,) = cells.export("parquet", tmp_path / "r.parquet")
    (text,) = cells.export("csv", tmp_path / "r.csv")
    read = parquet.read_table(table).to_pylist()
    plain = list(csv.DictReader(text.open()))
    assert [row["value"] for row in read] == [0.25, 0.75] == [float(r["value"]) for r in plain]
    assert [row["eps"] for row in read] == ["8/255", None]
    assert list(read[0]) == list(plain[0])


def test_a_frame_of_loaded_results(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    ResultStore(tmp_path).save(CLEAN)
    frame = load_results(tmp_path).to_frame()
    assert frame.query("metric == 'accuracy'")["value"].tolist() == [0.75]


def test_words_stay_words_in_latex_and_markdown(tmp_path: Path) -> None:
    cells = [
        clean_cell("50%_of $x$ & #1", "toy", np.ones(400, bool)),
        clean_cell("a|b", "toy", np.arange(400) % 2 == 0),
    ]
    (latex,) = export(cells, "latex", tmp_path / "t.tex")
    text = latex.read_text()
    assert r"50\%\_of \$x\$ \& \#1 & \textbf{100.0 \%}" in text
    assert text.count(r" \\") == 3
    (page,) = export(cells, "markdown", tmp_path / "t.md")
    assert r"| a\|b | 50.0 % |" in page.read_text()


def test_a_name_is_no_markup_of_a_card(tmp_path: Path) -> None:
    (card,) = export([clean_cell("<b>*a*", "d", np.ones(3, bool))], "model-card", tmp_path)
    assert "\n# &lt;b>\\*a\\*\n" in card.read_text()


def test_a_card_is_read_by_the_client_of_the_hub(tmp_path: Path) -> None:
    from huggingface_hub import ModelCard

    (path,) = export([CLEAN], "model-card", tmp_path)
    (found,) = ModelCard(path.read_text()).data.eval_results
    assert (found.metric_type, found.metric_value, found.dataset_name) == ("accuracy", 0.75, "toy")


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a commit needs."""

    card: bytes
    commits: list[list[dict[str, Any]]]
    tokens: set[str | None]

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, body: bytes, code: int = 200, **headers: str) -> None:
        self.send_response(code)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        if "/nobody/" in self.path or not self.path.endswith("/README.md"):
            self._answer(b"{}", 404, X_Error_Code="RepoNotFound")
        elif self.card == b"out of order":
            self._answer(b"", 500)
        elif self.card:
            self._answer(self.card, etag='"one"', x_repo_commit="0" * 40)
        else:
            self._answer(b"", 404, X_Error_Code="EntryNotFound")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.tokens.add(self.headers["authorization"])
        if self.path.endswith("/validate-yaml"):
            self._answer(b'{"errors": [], "warnings": []}', content_type="application/json")
        elif "/nobody/" in self.path:
            self._answer(b"{}", 404, X_Error_Code="RepoNotFound")
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            plain = {"uploadMode": "regular", "shouldIgnore": False}
            told = {"files": [{"path": file["path"], **plain} for file in files]}
            self._answer(json.dumps(told).encode(), content_type="application/json")
        else:
            self.commits.append([json.loads(line) for line in body.splitlines()])
            host, port = self.server.server_address[:2]
            told = {"commitUrl": f"http://{host}:{port}/me/m/commit/abc", "commitOid": "abc"}
            self._answer(json.dumps(told).encode(), content_type="application/json")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A hub on this machine, which the real client talks to."""
    from huggingface_hub import constants

    handler = type("Handler", (Hub,), {"card": b"", "commits": [], "tokens": set()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", here)
    there = constants.HUGGINGFACE_CO_URL_TEMPLATE.partition("/{repo_id}")
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", here + "".join(there[1:]))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "hf_none")
    yield handler
    server.shutdown()
    server.server_close()


def pushed(handler: Any) -> dict[str, str]:
    """The files of the last commit."""
    from base64 import b64decode

    files = [line["value"] for line in handler.commits[-1] if line["key"] == "file"]
    return {file["path"]: b64decode(file["content"]).decode() for file in files}


def test_push_keeps_what_others_wrote(hub: Any) -> None:
    from huggingface_hub import ModelCard

    assert push([CLEAN], "me/m").endswith("/me/m/commit/abc")
    files = pushed(hub)
    assert set(files) == {".eval_results/toy.yaml", "README.md"}
    assert yaml.safe_load(files[".eval_results/toy.yaml"])[0]["value"] == 0.75
    assert hub.tokens == {"Bearer hf_none"}
    # Somebody writes around it, and the next push changes its own part alone.
    card = files["README.md"].replace("# a\n", "# a\n\nBaked at home.\n")
    hub.card = f"{card}\n## Licence\n\nMine.\n".encode()
    better = clean_cell("a", "toy", np.ones(4, bool))
    push([better], "me/m")
    text = pushed(hub)["README.md"]
    assert "Baked at home." in text
    assert "## Licence\n\nMine." in text
    assert text.count("## Robustness scores") == 1
    assert [one.metric_value for one in ModelCard(text).data.eval_results] == [1.0]


def test_push_says_what_is_missing(hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="has no repository nobody/m"):
        push([CLEAN], "nobody/m")
    with pytest.raises(UserError, match="Choose with --model"):
        push([CLEAN, clean_cell("b", "toy", np.ones(4, bool))], "me/m")
    # A card that cannot be read now is none to be replaced by a new one.
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    hub.card = b"out of order"
    with pytest.raises(UserError, match="did not take the results"):
        push([CLEAN], "me/m")
    assert not hub.commits
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(UserError, match="hf auth login"):
        push([CLEAN], "me/m")


def test_figures_are_pictures(tmp_path: Path) -> None:
    from xml.etree import ElementTree

    cells = [CLEAN, clean_cell("<b> & co", "toy", np.ones(4, bool))]
    (svg,) = write_figures(cells, tmp_path)
    words = "".join(ElementTree.parse(svg).getroot().itertext())
    assert "<b> & co" in words
    with pytest.raises(UserError, match="nothing to draw"):
        write_figures([CLEAN], tmp_path)


def test_figures_are_vector_pages_with_text(tmp_path: Path) -> None:
    from base64 import a85decode
    from zlib import decompress

    pytest.importorskip("svglib")
    cells = [CLEAN, clean_cell("other", "toy", np.ones(4, bool))]
    (pdf,) = write_figures(cells, tmp_path, format="pdf")
    data = pdf.read_bytes()
    assert data.startswith(b"%PDF-")
    stream = data.partition(b"stream\n")[2].partition(b"~>")[0]
    assert b"(other)" in decompress(a85decode(stream))
