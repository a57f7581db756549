"""Pages to learn from: their commands run, their links lead somewhere, their numbers are ours."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from PIL import Image

from commands import invoke
from run_recipes import ARCHITECTURE
from stockpot.corrupt import BENCHMARK, EXTRA
from stockpot.datasets.load import load_dataset
from stockpot.fuse.mergekit.methods import METHODS
from stockpot.models.huggingface import new_huggingface
from stockpot.models.preprocess import Preprocess
from stockpot.types import ImageSize

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "site"))

import transcripts

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
PAGES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "studies").rglob("*.md")],
)
GENERATED = {"commands.md", "methods.md"}
"""Written when the site is built (docs/site/reference.py)."""


def prose(page: Path) -> str:
    """A page without its code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The places of a page that a link may name."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    # Words joined by hyphens, as GitHub and mkdocs have them.
    plain = (re.sub(r"[^\w\s-]", "", title.lower()) for title in titles)
    return {re.sub(r"\s+", "-", title.strip()) for title in plain}


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        if path in GENERATED:
            continue
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), target


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Models of the zoo by name, and pico models that take their place."""
    folder = tmp_path_factory.mktemp("models")
    classes = load_dataset("icons", limit=1).classes
    side, found = ImageSize(16, 16), {}
    for seed, end in enumerate(("vit-plain", "vit-colour", "vit-cutmix", "vit", "linf", "resnet")):
        made = new_huggingface(
            "vit", classes=classes, preprocess=Preprocess(side, side), seed=seed, **ARCHITECTURE
        )
        found[f"icons-{end}"] = str(made.save(folder / end))
    return found


def small(text: str, stand_ins: dict[str, str]) -> str:
    """A text about models of the zoo as one about their stand-ins."""
    names = "|".join(sorted(stand_ins, key=len, reverse=True))
    return re.sub(rf"\b({names})(?![\w-])", lambda match: stand_ins[match[0]], text)


def carried_out(words: list[str]) -> str:
    done = invoke(*words)
    assert done.exit_code == 0, f"{' '.join(words)}\n{done.output}"
    return done.output


def run_table(page: str, stand_ins: dict[str, str], further: dict[str, list[str]]) -> int:
    """Run each command that stands in the last cell of a row, on a few pictures; counts them."""
    text = small((DOCS / page).read_text(encoding="utf-8"), stand_ins)
    transcripts.run_page(text, carried_out)
    commands = [shlex.split(one)[1:] for one in re.findall(r"\| `(stockpot [^`]+)` \|", text)]
    commands = [words for words in commands if "MODEL" not in words]  # stands for any
    for words in commands:
        few = {"--limit": "4", "--shots": "2"}
        less = [few.get(before, word) for before, word in zip(["", *words], words, strict=False)]
        own = [settings for word, settings in further.items() if word in words]
        carried_out([*less, *(own[0] if own else [])])
    return len(commands)


def test_the_tutorial_prints_what_it_shows(
    stand_ins: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On few pictures and pico models: words are those of the page, numbers are not compared."""
    monkeypatch.setenv("COLUMNS", transcripts.WIDTH)
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    for many, few in (
        ("limit: 60", "limit: 6"),
        ("--data photos --with", "--data photos --limit 6 --with"),
    ):
        assert many in text
        text = text.replace(many, few)
    text = small(text, stand_ins)
    with transcripts.empty_folder() as folder:
        printed = transcripts.run_page(text, carried_out)
        assert (folder / "report.html").stat().st_size > 10_000
    assert len(re.findall(r"^\$ stockpot", printed, flags=re.MULTILINE)) == 7
    assert not transcripts.other_words(text, printed)


def test_differences_of_pages_are_seen() -> None:
    page = "$ stockpot x\naccuracy 50.0 % [44.4, 55.6], 7.7 s\n"
    assert not transcripts.difference(page, page.replace("7.7 s", "3 min 2 s"))
    assert not transcripts.difference(page, page.replace("50.0", "50.3"))
    assert "62.0" in transcripts.difference(page, page.replace("50.0", "62.0"))
    page += "```\n"
    assert not transcripts.other_words(page, page.replace("50.0", "62.0").replace("], ", "],\n"))
    assert "'top'" in transcripts.other_words(page, page.replace("accuracy", "top 5"))


def test_every_number_of_the_choosing_guide_stands_in_the_study_that_it_links() -> None:
    told, missing = 0, []
    for line in (DOCS / "choosing.md").read_text(encoding="utf-8").splitlines():
        # What stands before a link, from the last cell or link on, is said to be of that study.
        parts = re.split(r"\]\(\.\./studies/([\w/]+)/README\.md[^)]*\)", line)
        for text, study in zip(parts[::2], parts[1::2], strict=False):
            pages = (ROOT / "studies" / study).glob("*.md")
            page = " ".join(path.read_text(encoding="utf-8") for path in pages)
            page = page.replace("+", "").replace(",", "")
            said = re.sub(r"`[^`]*`|[A-Za-z]\w*-\d+", " ", text.split(" | ")[-1])
            said = said.replace("+", "").replace(",", "")
            told += len(intervals := re.findall(r"-?[\d.]+ \[-?[\d.]+ -?[\d.]+\]", said))
            missing += [(study, each) for each in intervals if each not in page]
            for number in re.findall(r"(?<![\w.-])-?\d+(?:\.\d+)?(?![\w/])", said):
                if not re.search(rf"(?<![\w.]){number}(?!\w|\.\d)", page):
                    missing.append((study, number))
    assert told > 30
    assert not missing


def test_from_mergekit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_ins: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    assert run_table("from-mergekit.md", stand_ins, {}) == 9
    text = (DOCS / "from-mergekit.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", text, flags=re.MULTILINE))
    assert shown == {name: method.ours for name, method in METHODS.items()}


def test_from_robustbench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_ins: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["-p", "steps=1", "-p", "queries=1"]
    # `clean,adversarial` stays whole, as its export must be of AutoAttack as published.
    further = {"autoattack": few, "robustbench-l2": few}
    assert run_table("from-robustbench.md", stand_ins, further) == 9
    assert list((tmp_path / "model_info").rglob("*.json"))


def test_from_imagecorruptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_ins: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    Image.new("RGB", (32, 32), "red").save(tmp_path / "photos" / "cat" / "0.png")
    further = {"corrupt": ["--engine", "serial"]}
    assert run_table("from-imagecorruptions.md", stand_ins, further) == 4
    # As get_corruption_names() of imagecorruptions 1.1.2 has them, in its order, then `validation`.
    assert [*BENCHMARK, *EXTRA] == [
        "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur",
        "motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast",
        "elastic_transform", "pixelate", "jpeg_compression",
        "speckle_noise", "gaussian_blur", "spatter", "saturate",
    ]  # fmt: skip
