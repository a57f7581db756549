"""`stockpot init` writes recipes that can be followed; the reference is what the schema says."""

from __future__ import annotations

from pathlib import Path

from commands import invoke

ROOT = Path(__file__).parents[2]


def test_a_first_recipe_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "first.yaml"
    models = "icons-vit,a: b=icons-vit-plain"
    told = invoke("init", file, "--models", models)
    assert told.exit_code == 1  # either all have names or none
    models = "base=icons-vit,a: b=icons-vit-plain,c=icons-vit-colour"  # names that YAML would split
    told = invoke("init", file, "--models", models, "--fuse", "ties", "--measures", "clean")
    assert told.exit_code == 0, told.output
    assert "Which data: a name or a folder? [icons]" in told.output  # not asked: no terminal
    assert invoke("validate", file).exit_code == 0
    done = invoke("run", file, "--set", "data.data.limit=4", "-o", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "report.html").is_file()
    assert len(list((tmp_path / "run" / "results").glob("*.json"))) == 4  # three and the fused one


def test_mistakes_leave_no_file(tmp_path: Path) -> None:
    file = tmp_path / "first.yaml"
    for options, words in (
        (("--measures", "claen"), "clean"),
        (("--data", "nowhere"), "nowhere"),
        (("--models", "icons-vit", "--fuse", "ties"), "needs a base"),
    ):
        told = invoke("init", file, *options)
        assert told.exit_code == 1
        assert words in told.output
        assert not file.exists()
    file.write_text("mine", encoding="utf-8")
    assert "exists already" in invoke("init", file).output
    assert file.read_text(encoding="utf-8") == "mine"


def test_the_reference_page_is_what_the_schema_says() -> None:
    page = (ROOT / "docs" / "recipe-reference.md").read_text(encoding="utf-8")
    made = invoke("validate", "--reference").output
    assert page == made, "run: stockpot validate --reference > docs/recipe-reference.md"
    for key in ("`bn_images`", "`unseen`", "`density=0.2`", "`with`"):
        assert key in page
