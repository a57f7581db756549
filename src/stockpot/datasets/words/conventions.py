"""The words of published benchmarks, taken over exactly, and which of them some data has.

- `fusionbench`: the 20 tasks of model merging, from `fusion_bench/tasks/clip_classification`;
- `clip`: ImageNet's 1000 classes and sets of them, from CLIP's notebook as open_clip has it.

The files hold a section for each task: `# task`, its templates after `>`, its names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from stockpot.datasets.natural.classes import imagenet_names
from stockpot.datasets.words.words import Spoken, Words, plain_words

FUSIONBENCH = "fusionbench"
CLIP = "clip"


def fusionbench_words(task: str) -> Words:
    """The words of one of the 20 tasks, by its name here."""
    return _conventions(FUSIONBENCH)[task]


def clip_words(places: Sequence[int] | None = None) -> Words:
    """CLIP's words for ImageNet's classes: all of them, or those at some of the 1000 places."""
    whole = _conventions(CLIP)["imagenet"]
    if places is None:
        return whole
    return Words(tuple(whole.names[place] for place in places), whole.templates, CLIP)


def words_of(data: Spoken) -> Words:
    """What is said of some data: by its convention, or its names in its templates.

    Data with ImageNet's 1000 classes is spoken of as CLIP does, wherever it comes from.
    """
    if data.vocabulary is not None:
        return data.vocabulary
    return clip_words() if data.classes == imagenet_names() else own_words(data)


def own_words(data: Spoken) -> Words:
    """The data's own class names in its own templates, whatever is customary."""
    return plain_words(data.classes, data.templates)


@cache
def _conventions(name: str) -> dict[str, Words]:
    text = (files("stockpot.datasets.words") / f"{name}.txt").read_text(encoding="utf-8")
    found = {}
    for section in text.split("# ")[1:]:
        task, *lines = section.splitlines()
        templates = tuple(line.removeprefix("> ") for line in lines if line.startswith("> "))
        names = tuple(line for line in lines if not line.startswith("> "))
        found[task] = Words(names, templates, name)
    return found
