"""`stockpot serve MODEL`: a model behind an address, to be measured there."""

from __future__ import annotations

import signal
from threading import Thread
from typing import Annotated

import typer

from stockpot.cli.options import Device, ModelOptions, examples

NAME = "serve"
EXAMPLES = examples(
    "stockpot serve icons-resnet --port 8000",
    "stockpot serve shipped/icons-resnet --port 8000",
)


def command(
    model: Annotated[str, typer.Argument(help="A model, as for `measure`.")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 is any that is free.")
    ] = 8000,
    model_option: ModelOptions = None,
    device: Device = "auto",
) -> None:
    """Answer for one model over HTTP: the reference of the protocol that endpoints are asked by.

    Pixels go in as `.npy` and logits come back as `.npy` (docs/shipped.md). It is made for
    measuring, not for the open internet: it has no authentication.
    """
    from stockpot.cli.options import key_values
    from stockpot.engine import pick_device
    from stockpot.models.load import load_model
    from stockpot.models.shipped.serve import server_of

    loaded = load_model(model, **key_values(model_option, "-m")).to(pick_device(device))
    server = server_of(loaded, host, port)
    where = f"http://{host}:{server.server_address[1]}"
    typer.echo(f"{model} at {where}; stop it with Ctrl-C. Measure it with:")
    typer.echo(f"  stockpot measure {where} --data DATA --with clean")
    # From another thread: the loop that is to end is the one that the signal interrupts.
    signal.signal(signal.SIGINT, lambda *_: Thread(target=server.shutdown).start())
    with server:
        server.serve_forever()
