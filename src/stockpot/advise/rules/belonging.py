"""Do these models belong together, and what has to be done before they are merged?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stockpot.advise.advice import Item
from stockpot.advise.facts import KIN, Facts, Member
from stockpot.advise.rules.words import Words, called


def other_architectures(facts: Facts, words: Words) -> Iterator[Item]:
    """Tensors that do not line up cannot be mixed."""
    others = [member for member in facts.members if not member.comparable]
    if others and len(others) == len(facts.members):
        yield Item(
            "avoid", "merging them into this base",
            f"{facts.base} is of another architecture than {called(others)}: {others[0].why}. Give "
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
            "first", f"leave out {called(apart)}",
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
        yield from _aligned(facts, words, apart)


def _aligned(facts: Facts, words: Words, apart: Sequence[Member]) -> Iterator[Item]:
    """Units can be brought together, and layers solved where all answer the same question."""
    models = f"{words.base} {words.of(apart)}"
    made = ["fused/aligned"]
    commands = [f"stockpot fuse average {models} --align -o fused/aligned"]
    alike = all(member.fits == "whole" for member in apart) and not facts.text_head
    if alike:
        by = "-p match=activations " if facts.batch_norm else ""
        made.insert(0, "fused/pleas")
        commands.insert(
            0, f"stockpot fuse pleas {models} --task {words.data}@train {by}-o fused/pleas"
        )
    measured = f"stockpot measure {' '.join(made)} {models} --data {words.data} --with clean"
    yield Item(
        "first", "align before you merge, if one model is needed",
        "units of this architecture can be brought into the same order"
        f"{', and layers solved anew on unlabelled images (pleas)' if alike else ''}; whether that "
        "is enough, measure: the merge must not be below the worse of its members.",
        ("units",) if alike and facts.batch_norm else (),
        (*commands, measured),
    )  # fmt: skip
    if not facts.batch_norm:
        yield Item(
            "open", "how much alignment mends here",
            "the study was of residual networks with BatchNorm.",
        )  # fmt: skip


def heads(facts: Facts, words: Words) -> Iterator[Item]:
    """Heads that answer other questions are not mixed."""
    other = [m for m in facts.usable if m.fits in ("other head", "other classes")]
    if not other:
        return
    yield Item(
        "first", "keep each member's own head",
        f"{called(other)}: {other[0].why}. What lies below the head can be merged; a mean of heads "
        "for different classes answers neither.",
        commands=(words.fuse("average", "--head each"), words.fuse("average", "--head drop")),
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
            "works", f"lines between {facts.base} and {called(flat)}",
            f"no barrier beyond its interval on {facts.images} images of {facts.data} (the largest "
            f"{100 * max(m.line.barrier for m in flat if m.line):+.1f} points); with so few "
            "images a small one cannot be seen.",
        )  # fmt: skip


def _least(members: Sequence[Member]) -> float:
    return min(member.kin for member in members if member.kin >= KIN)
