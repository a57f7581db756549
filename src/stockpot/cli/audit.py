"""`stockpot audit MODEL`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from stockpot.cli.options import (
    AsJson,
    DataOptions,
    Device,
    ModelOptions,
    Seed,
    examples,
    library_defaults,
)

NAME = "audit"
LIBRARY = library_defaults("stockpot.measure.run:measure")
AUDIT = library_defaults("stockpot.measure.adversarial.audit:audit")
EXAMPLES = examples(
    "stockpot audit icons-linf --data icons",
    "stockpot audit runs/mine --data cifar10 --eps 8/255 --twin cifar10-nominal -o runs/audited",
)


def command(
    model: Annotated[str, typer.Argument(help="A model, as for `stockpot measure`.")],
    data: Annotated[str, typer.Option("--data", help="A dataset's name, folder or file.")],
    norm: Annotated[str, typer.Option(help="linf, l2 or l1.")] = AUDIT.norm,
    eps: Annotated[str, typer.Option(help="The radius of the claim; white is 1.")] = AUDIT.eps,
    budget: Annotated[int, typer.Option(help="Forward passes per image, at most.")] = AUDIT.budget,
    limit: Annotated[
        int, typer.Option("--limit", help="How many images are looked at.")
    ] = AUDIT.images,
    twin: Annotated[
        str, typer.Option(help="A model of the same task that hides nothing.")
    ] = AUDIT.twin,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A run folder (or address) for the result and audit.html."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="Which split of the data.")] = "test",
    model_option: ModelOptions = None,
    data_option: DataOptions = None,
    seed: Seed = LIBRARY.seed,
    device: Device = LIBRARY.device,
    as_json: AsJson = False,
) -> None:
    """Can an attack on this model be believed? Every known sign, one verdict.

    More steps and a larger radius must not be weaker, noise not better than gradients, a search
    without gradients not stronger than one with them, nothing must stand where every picture can
    become grey, losses must grow with the radius; gradients must exist and lead, answers must
    repeat. Verdicts: cleared, suspicious, convicted (docs/trust.md).
    """
    from stockpot.cli.console import ImageProgress, table
    from stockpot.cli.console import out as console
    from stockpot.cli.options import key_values
    from stockpot.measure.run import measure
    from stockpot.remote.working_copy import working_copy
    from stockpot.report.page import write_page
    from stockpot.results.store import load_results
    from stockpot.results.trust import worst_of

    settings: dict[str, Any] = {
        "norm": norm, "eps": eps, "budget": budget, "images": limit, "twin": twin
    }  # fmt: skip
    copy = working_copy(out, weights=False) if out is not None else nullcontext()
    page = ""
    with ImageProgress() as progress, copy as place:
        (result,) = measure(
            [model],
            {"audit": settings},
            data=data,
            out=place.folder if place else None,
            seed=seed,
            device=device,
            model_options=key_values(model_option, "-m"),
            data_options={"split": split, **key_values(data_option, "-d")},
            progress=progress,
        )
        if place:
            found = [each for each in load_results(place.folder) if each.findings]
            page = place.shown(write_page(found, place.folder / "audit.html", title="Audits"))
    if as_json:
        typer.echo(result.model_dump_json())
        return
    score = result.score("audited_accuracy")
    table(
        ["check", "verdict", "images", "of", "what speaks against it"],
        [
            [each.name, each.verdict, str(each.count), str(each.of), each.words * bool(each.count)]
            for each in result.findings
        ],
        title=f"{model} on {data}, {norm} {eps}: {worst_of(result.findings)}",
    )
    console.print(
        f"{100 * score.value:.1f} % of {score.n} images withstood everything, "
        f"{result.cost.images / score.n:.0f} forward passes an image"
    )
    if page:
        typer.echo(f"page: {page}")
