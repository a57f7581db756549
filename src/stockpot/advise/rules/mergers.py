"""Which methods suit the members that belong together?"""

from __future__ import annotations

from collections.abc import Iterator

from stockpot.advise.advice import Item
from stockpot.advise.facts import ORTHOGONAL, Facts
from stockpot.advise.rules.words import Words, called, joined


def alone(facts: Facts, words: Words) -> Iterator[Item]:
    """One member and its base: a line between two models."""
    if len(facts.usable) == 1:
        (member,) = facts.usable
        yield Item(
            "works", "wise_ft",
            f"of {facts.base} and {member.name} the straight line is left: halfway gives up a part "
            "of what tuning gained for a part of what it forgot.",
            ("wise_ft",),
            (f"stockpot fuse wise_ft {words.base} {words.members} -p alpha=0.5 -o fused/wise_ft",),
        )  # fmt: skip


def robust_family(facts: Facts, words: Words) -> Iterator[Item]:
    """Members trained against different attacks."""
    if len(facts.usable) and len(facts.threats) > 1:
        threats = ",".join(facts.threats)
        yield Item(
            "works", "seasoning by the attacks together",
            f"trained against {joined(facts.threats)}: a soup trades one for the other, and "
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
    # The pool of the study: full fine-tunings for several tasks, whose changes hardly meet.
    alike = (_several_tasks(facts) or cosine < ORTHOGONAL) and not facts.thin
    how = f"their changes have a cosine of {cosine:+.2f} in the mean"
    met = "they hardly meet, and add up" if cosine < ORTHOGONAL else "they went partly the same way"
    study = (
        " The study's members were full fine-tunings for seven tasks, with cosines of up to 0.06."
    )
    far = "" if alike else study
    yield Item("works", "average", f"{how}: {met}.{far}", ("average",), (words.fuse("average"),))
    if facts.matrices <= 0.5:
        yield Item(
            "avoid", "tsv_m, iso_c and iso_cts",
            f"they work on matrices, and {100 * (1 - facts.matrices):.0f} % of these weights stand "
            "elsewhere (convolutions, embeddings), where they take the mean change.",
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
        yield from _experts(facts, words) if alike and not facts.own_heads else ()
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
    if facts.own_heads:
        yield Item(
            "open", "what suits experts with heads of their own best",
            "the study's experts share a head that is made of words; `--head each` merges what "
            "lies below, with any method that needs no images.",
        )  # fmt: skip
    if alike:
        yield from _untuned(facts, words)
    elif not facts.thin and not facts.own_heads:
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
        f"members of several tasks ({joined(facts.tasks) or 'as their heads or changes tell'}); "
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
        "works", "wemoe, if the model may grow, with unlabelled test images",
        "routers mix the experts' MLPs anew for every image.",
        ("routers",),
        (words.fuse("wemoe", words.tasks.replace("@train", "")),),
    )  # fmt: skip
    yield Item(
        "avoid", "a merge for tasks that none of them was made for",
        "what is gained on their own tasks is lost elsewhere.",
        ("unseen",),
    )  # fmt: skip


def adapters(facts: Facts, words: Words) -> Iterator[Item]:
    """LoRAs: low ranks, which no study here has merged."""
    low = [member for member in facts.thin if member.adapter is not None]
    if not facts.thin:
        return
    ranks = [max(m.adapter or 0, m.spectrum.rank if m.spectrum else 0) for m in facts.thin]
    what = "LoRA adapters" if low else "changes of low rank"
    yield Item(
        "open", f"which method suits {what} best",
        f"{called(facts.thin)} change at most {max(ranks)} directions of a matrix "
        f"each; all methods take them as whole weights over {facts.base}, and a sum of them has a "
        f"rank of at most {sum(ranks)}. Our studies merged full fine-tunings.",
        commands=(f"stockpot fuse average {words.members} --base {words.base} --as-lora "
                  f"{max(sum(ranks), 1)} -o fused/adapter",) if len(facts.usable) > 1 else (),
    )  # fmt: skip


def _several_tasks(facts: Facts) -> bool:
    """Whether the members were made for different tasks."""
    if len(facts.tasks) > 1 or facts.own_heads:
        return True
    return facts.text_head and facts.mean_cosine < ORTHOGONAL
