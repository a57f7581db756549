"""The rules: from facts of a pool to advice. What a rule claims stands in `evidence.py`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from stockpot.advise.advice import Item
from stockpot.advise.facts import KIN, ORTHOGONAL, Facts, Member

_ORDER = ("first", "works", "avoid", "open")


@dataclass(frozen=True)
class Words:
    """The pool as words of a command line."""

    facts: Facts

    @property
    def base(self) -> str:
        return shlex.quote(self.facts.base_source)

    @property
    def members(self) -> str:
        return self.of(self.facts.usable)

    @property
    def data(self) -> str:
        """The data that was given, or what it was trained on, or a word for it."""
        known = self.facts.data or next(iter(self.facts.tasks), "")
        return shlex.quote(known) if known else "DATA"

    @property
    def tasks(self) -> str:
        """What each member was trained on, as `--task` wants it."""
        each = [shlex.quote(f"{member.task}@train") if member.task else f"TASK{k}"
                for k, member in enumerate(self.facts.usable, start=1)]  # fmt: skip
        return " ".join(f"--task {task}" for task in each)

    @property
    def judged(self) -> str:
        """What a merge is to be judged by, once for each task."""
        several = self.facts.tasks if not self.facts.data else ()
        return " ".join(f"--data {shlex.quote(task)}" for task in several) or f"--data {self.data}"

    def of(self, members: Sequence[Member]) -> str:
        """Members by their sources."""
        return " ".join(shlex.quote(member.source) for member in members)

    def fuse(self, method: str, further: str = "") -> str:
        """Fuse the members that belong together."""
        end = f" {further}" if further else ""
        return f"stockpot fuse {method} {self.members} --base {self.base}{end} -o fused/{method}"


def advice(facts: Facts) -> tuple[Item, ...]:
    """All that the rules have to say, in the order in which one would do it."""
    words = Words(facts)
    found = [item for rule in RULES for item in rule(facts, words)]
    return tuple(sorted(found, key=lambda item: _ORDER.index(item.kind)))


def other_architectures(facts: Facts, words: Words) -> Iterator[Item]:
    """Tensors that do not line up cannot be mixed."""
    others = [member for member in facts.members if not member.comparable]
    if others and len(others) == len(facts.members):
        yield Item(
            "avoid", "merging them into this base",
            f"{facts.base} is of another architecture than {_names(others)}: {others[0].why}. Give "
            "the base that they were tuned from; networks of different make have no weights in "
            "common, but their answers can be compared and averaged.",
            commands=(f"stockpot measure {words.of(others)} --data DATA --with clean",),
        )  # fmt: skip
        return
    for member in others:
        yield Item(
            "first", f"leave out {member.name}",
            f"it is of another architecture: {member.why}. It may be a good model; its weights "
            "have no place here. Compare it, or average its answers with those of the merge.",
            commands=(f"stockpot measure {words.of([member])} {words.base} --data {words.data} "
                      "--with clean",),
        )  # fmt: skip


def copies(facts: Facts, words: Words) -> Iterator[Item]:
    """A model that is named twice counts twice."""
    for member in facts.members:
        if member.same_as and member.same_as == facts.base:
            yield Item(
                "first", f"leave out {member.name}",
                f"its weights are those of {facts.base}: it changed nothing, and would only "
                "shorten what the others changed.",
            )  # fmt: skip
        elif member.same_as:
            yield Item(
                "first", f"name {member.same_as} once",
                f"{member.name} holds the same weights. To count a member more than the others, "
                "use weights.",
                commands=(words.fuse("task_arithmetic", "-p weights=..."),)
                if len(facts.usable) > 1 else (),
            )  # fmt: skip


def strangers(facts: Facts, words: Words) -> Iterator[Item]:
    """Weights that do not lie near the base were not tuned from it."""
    compared = [member for member in facts.members if member.comparable and not member.same_as]
    apart = [member for member in compared if member.kin < KIN]
    if not apart:
        return
    if len(apart) == len(compared) and len(apart) > 1 and facts.relatives >= KIN:
        yield Item(
            "first", "give another base",
            f"the members are of one family (cosine of their weights {facts.relatives:.2f}), and "
            f"{facts.base} is not of it (at most {max(m.kin for m in apart):.2f}). Without their "
            "base, methods that need none still work.",
            ("average",),
            (f"stockpot fuse average {words.of(apart)} -o fused/average",),
        )  # fmt: skip
        return
    told = ", ".join(f"{member.name} {member.kin:.2f}" for member in apart)
    if len(apart) < len(compared):
        yield Item(
            "first", f"leave out {_names(apart)}",
            f"trained apart from the others: the cosine of its weights and the base's is {told}; "
            f"fine-tuning leaves it near 1 (here at least {_least(compared):.2f}).",
            ("apart",),
        )  # fmt: skip
        return
    yield Item(
        "avoid", "merging them as they are",
        f"these were trained apart: the cosines of their weights and the base's are {told}, and "
        "fine-tuning leaves them near 1. Take the best of them, or average their answers.",
        ("apart", *(("batch_norm",) if facts.batch_norm else ())),
        (f"stockpot measure {words.of(apart)} --data {words.data} --with clean",),
    )  # fmt: skip
    if facts.permutable:
        pair = f"{words.base} {words.of(apart)}"
        yield Item(
            "first", "align before you merge, if one model is needed",
            "units of this architecture can be brought into the same order; whether that is "
            "enough, measure: the merge must not be below the worse of its members.",
            commands=(f"stockpot fuse average {pair} --align -o fused/aligned",
                      f"stockpot measure fused/aligned {pair} --data {words.data} --with clean"),
        )  # fmt: skip
        yield Item(
            "open", "how much alignment mends",
            "no study here has measured it.",
        )  # fmt: skip


def heads(facts: Facts, words: Words) -> Iterator[Item]:
    """Heads that answer other questions are not mixed."""
    other = [m for m in facts.usable if m.fits in ("other head", "other classes")]
    if not other:
        return
    yield Item(
        "first", "keep each member's own head",
        f"{_names(other)}: {other[0].why}. What lies below the head can be merged; a mean of heads "
        "for different classes answers neither.",
        commands=(words.fuse("average", "--head each"), words.fuse("average", "--head drop")),
    )  # fmt: skip


def valleys(facts: Facts, words: Words) -> Iterator[Item]:
    """What was seen on the way to the base."""
    deep = [m for m in facts.members if m.line and m.line.low > 0]
    for member in deep:
        line = member.line
        assert line is not None
        told = f"{100 * line.barrier:+.1f} [{100 * line.low:+.1f}, {100 * line.high:+.1f}]"
        yield Item(
            "avoid", f"a straight line from {facts.base} to {member.name}",
            f"halfway it is at {100 * line.halfway:.1f} % on {facts.images} images of "
            f"{facts.data}, the ends are at {100 * line.base:.1f} and {100 * line.member:.1f}: a "
            f"barrier of {told} points.",
            ("apart",) if not member.belongs else (),
        )  # fmt: skip
    flat = [m for m in facts.usable if m.line and m.line.low <= 0]
    if flat and facts.images:
        yield Item(
            "works", f"lines between {facts.base} and {_names(flat)}",
            f"no barrier beyond its interval on {facts.images} images of {facts.data} (the largest "
            f"{100 * max(m.line.barrier for m in flat if m.line):+.1f} points); with so few "
            "images a small one cannot be seen.",
        )  # fmt: skip


def statistics(facts: Facts, words: Words) -> Iterator[Item]:
    """BatchNorm's statistics belong to the weights that made them."""
    if facts.batch_norm and facts.usable:
        data = f"--bn recompute --task {words.data}@train"
        yield Item(
            "first", "estimate BatchNorm's statistics anew where images are at hand",
            "the network has running means and variances, and a mean of those is not the merge's.",
            ("batch_norm",),
            (words.fuse("average", data),),
        )  # fmt: skip


def alone(facts: Facts, words: Words) -> Iterator[Item]:
    """One member and its base: a line between two models."""
    if len(facts.usable) == 1:
        (member,) = facts.usable
        yield Item(
            "works", "wise_ft",
            f"of {facts.base} and {member.name} the straight line is left: halfway keeps what "
            "tuning gained, and much of what it forgot.",
            ("wise_ft",),
            (f"stockpot fuse wise_ft {words.base} {words.members} -p alpha=0.5 -o fused/wise_ft",),
        )  # fmt: skip


def robust_family(facts: Facts, words: Words) -> Iterator[Item]:
    """Members trained against different attacks."""
    if len(facts.usable) and len(facts.threats) > 1:
        threats = ",".join(facts.threats)
        yield Item(
            "works", "seasoning by the attacks together",
            f"trained against {_joined(facts.threats)}: a soup trades one for the other, and "
            "images under attack choose the place.",
            ("norms", "shots"),
            (f"stockpot season grid {words.base} {words.members} --data {words.data} "
             f"-p threats={threats} -o fused/season",
             f"stockpot measure fused/season --data {words.data} --with adversarial"),
        )  # fmt: skip


def many(facts: Facts, words: Words) -> Iterator[Item]:
    """Several members of one family."""
    if len(facts.usable) < 2:
        return
    cosine = facts.mean_cosine
    # The pool of the study: experts of several tasks, whose changes hardly meet.
    alike = _several_tasks(facts) or cosine < ORTHOGONAL
    how = f"their changes have a cosine of {cosine:+.2f} in the mean"
    met = "they hardly meet, and add up" if cosine < ORTHOGONAL else "they went partly the same way"
    far = "" if alike else " The study's changes were of five tasks, with cosines of 0.00 to 0.04."
    yield Item("works", "average", f"{how}: {met}.{far}", ("average",), (words.fuse("average"),))
    if facts.matrices <= 0.5:
        yield Item(
            "avoid", "tsv_m, iso_c and iso_cts",
            f"they work on matrices, and {100 * (1 - facts.matrices):.0f} % of these weights stand "
            "elsewhere (convolutions), where they take the mean change.",
        )  # fmt: skip
    elif alike:
        yield Item(
            "works", "iso_cts, iso_c or tsv_m, which need no images either",
            f"{100 * facts.matrices:.0f} % of the weights stand in matrices, whose directions they "
            "balance.",
            ("spectral",),
            (words.fuse("iso_cts"),),
        )  # fmt: skip
    if _several_tasks(facts):
        yield from _experts(facts, words)
    elif not facts.threats:
        yield Item(
            "works", "choosing the weights of a soup on a hundred labelled images",
            "members of one task, with one head: labels of where it will be used tell how much of "
            "each.",
            ("shots",),
            (f"stockpot season grid {words.base} {words.members} --data {words.data} --shots 100 "
             "-o fused/season",),
        )  # fmt: skip
    if cosine < ORTHOGONAL:
        yield Item(
            "avoid", "hoping for more from signs (ties and its kin)",
            f"{how}, and where two members change a weight, {100 * facts.agreement:.0f} % of the "
            "signs agree; by chance it would be half of them.",
            ("orthogonal",),
        )  # fmt: skip
    if alike:
        yield from _untuned(facts, words)
    else:
        yield Item(
            "open", "which method is best for members of one task",
            "the studies here merged experts of several tasks, and robust members; let validation "
            "images decide.",
            commands=(f"stockpot tune ties,task_arithmetic,karcher {words.members} --base "
                      f"{words.base} {words.judged} -o tuned",),
        )  # fmt: skip


def _untuned(facts: Facts, words: Words) -> Iterator[Item]:
    yield Item(
        "avoid", "adding up the changes at full length",
        f"task_arithmetic with {len(facts.usable)} members: a scale of 1 / {len(facts.usable)} is "
        "the average; look for yours on validation images.",
        ("scale",),
        (f"stockpot tune task_arithmetic {words.members} --base {words.base} {words.judged} "
         "--space scale=0.05:1 -o tuned",),
    )  # fmt: skip
    yield Item(
        "avoid", "untuned settings of della and wudi",
        "their scale decides, and it was made for other pools; `stockpot tune` looks for yours.",
        ("defaults",),
    )  # fmt: skip


def _experts(facts: Facts, words: Words) -> Iterator[Item]:
    yield Item(
        "works", "regmean, with a few hundred training images of each task",
        f"members of several tasks ({_joined(facts.tasks) or 'as their heads or changes tell'}); "
        "labels are not needed.",
        ("regmean",),
        (words.fuse("regmean", words.tasks),),
    )  # fmt: skip
    yield Item(
        "works", "smile, if the model may grow, or tall_mask, if the task is known",
        "each expert's changes stay apart.",
        ("grow",),
        (words.fuse("smile"), words.fuse("tall_mask")),
    )  # fmt: skip
    yield Item(
        "works", "adamerging, with unlabelled test images",
        "it learns a coefficient for every layer and member; look at calibration first.",
        ("adamerging",),
        (words.fuse("adamerging", words.tasks.replace("@train", "")),),
    )  # fmt: skip
    yield Item(
        "avoid", "a merge for tasks that none of them was made for",
        "what is gained on their own tasks is lost elsewhere.",
        ("unseen",),
    )  # fmt: skip


def adapters(facts: Facts, words: Words) -> Iterator[Item]:
    """LoRAs: low ranks, which no study here has merged."""
    low = [m for m in facts.usable if m.adapter is not None]
    thin = [m for m in facts.usable
            if m.adapter is None and m.spectrum and 0 < m.spectrum.share <= 0.5]  # fmt: skip
    if not low and not thin:
        return
    ranks = [m.spectrum.rank for m in (*low, *thin) if m.spectrum] or [0]
    what = "LoRA adapters" if low else "changes of low rank"
    yield Item(
        "open", f"which method suits {what} best",
        f"{_names(low or thin)} change at most {max(ranks)} directions of a matrix "
        f"each; all methods take them as whole weights over {facts.base}, and a sum of them has a "
        f"rank of at most {sum(ranks)}. Our studies merged full fine-tunings.",
        commands=(f"stockpot fuse average {words.members} --base {words.base} --as-lora "
                  f"{max(sum(ranks), 1)} -o fused/adapter",) if len(facts.usable) > 1 else (),
    )  # fmt: skip


RULES: tuple[Callable[[Facts, Words], Iterator[Item]], ...] = (
    other_architectures, copies, strangers, heads, statistics, alone, robust_family, many, adapters,
    valleys,
)  # fmt: skip


def _several_tasks(facts: Facts) -> bool:
    """Whether the members were made for different tasks."""
    if len(facts.tasks) > 1 or any(m.fits in ("other head", "other classes") for m in facts.usable):
        return True
    return facts.text_head and facts.mean_cosine < ORTHOGONAL


def _names(members: Sequence[Member]) -> str:
    return _joined([member.name for member in members])


def _joined(texts: Sequence[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else list(texts))


def _least(members: Sequence[Member]) -> float:
    return min(member.kin for member in members if member.kin >= KIN)
