"""What mkdocs is told beyond its settings: pages from outside docs/, and links between all of them.

README, the change log and the studies are pages of the site too. Links in them and to them are
written for the repository; here each is brought to where its target lies in the site. A page that
is added to docs/ and not to `nav` goes to the end of it, so that nobody is in the way of another.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OUTSIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "studies/**/*.md")
GENERATED = {"commands.md": reference.commands, "methods.md": reference.methods}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
ASKS = re.compile(
    r"<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=[\"']?(https?:[^\"' >]+)"
)
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


def on_config(config: Any) -> Any:
    """Pages that the navigation does not name are put at its end."""
    named = set(re.findall(r"[\w./-]+\.md", repr(config["nav"])))
    there = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} | set(GENERATED)
    if further := sorted(there - named):
        config["nav"].append({"Further": further})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what lies outside docs/, and what code writes."""
    pages = [path for pattern in OUTSIDE for path in sorted(ROOT.glob(pattern))]
    linked = {
        target
        for page in [*pages, *DOCS.rglob("*.md")]
        for target in _targets(page)
        if target.is_file() and DOCS not in target.parents
    }
    for path in dict.fromkeys([*pages, *sorted(linked)]):
        name = str(path.relative_to(ROOT))
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for name, write in GENERATED.items():
        files.append(File.generated(config, name, content=write()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links as they hold in the site."""
    if page.file.src_uri in GENERATED:
        return markdown
    source = _source(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = (source.parent / target).resolve()
        if path.is_dir() or not path.exists():
            # What the site does not hold is named by its path in the repository.
            return f"`{target}`" if path.is_dir() else match[0]
        place = os.path.relpath(_place(path), Path(page.file.src_uri).parent)
        return f"{before}{place}{after}"

    return _outside_code(markdown, lambda text: LINK.sub(moved, text))


def on_post_build(config: Any) -> None:
    """Nothing may be asked of others when the site is read."""
    for page in Path(config["site_dir"]).rglob("*.html"):
        for tag in re.finditer(r"<[^>]+>", page.read_text(encoding="utf-8")):
            if (found := ASKS.match(tag[0])) and "rel=canonical" not in tag[0]:
                raise PluginError(f"{page.name} asks {found[1]} when it is read.")


def _targets(page: Path) -> set[Path]:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    found = (match[2] for match in LINK.finditer(text))
    return {(page.parent / target).resolve() for target in found if ":" not in target}


def _source(uri: str) -> Path:
    inside = DOCS / uri
    return inside if inside.is_file() else ROOT / uri


def _place(path: Path) -> Path:
    """Where a file of the repository lies in the site."""
    return path.relative_to(DOCS if DOCS in path.parents else ROOT)


def _outside_code(text: str, change: Any) -> str:
    parts = CODE.split(text)
    return "".join(part if index % 2 else change(part) for index, part in enumerate(parts))
