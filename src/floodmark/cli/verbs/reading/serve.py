"""The verb serve: results and keyed state over HTTP, by key."""

# ruff: noqa: PLC0415 - modules that are slow to import are imported on first use

from __future__ import annotations

import click

from floodmark.cli.shell.console import Console
from floodmark.cli.shell.invocation import Invocation, pass_invocation, shared
from floodmark.cli.shell.loading import opened_lake
from floodmark.cli.shell.signals import stopping
from floodmark.core.errors import SetupError


@click.command()
@click.argument("outputs", nargs=-1, metavar="[OUTPUT]...")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; another one needs a token.")
@click.option("--port", type=click.IntRange(0, 65_535), default=9465, show_default=True, help="0 for any free one.")
@click.option(
    "--token",
    "tokens",
    multiple=True,
    metavar="SECRET",
    help="Where tokens are: env:NAME, or file:PATH. A question then needs one of them.",
)
@shared
@pass_invocation
def serve(invocation: Invocation, *, outputs: tuple[str, ...], host: str, port: int, tokens: tuple[str, ...]) -> None:
    """Answer questions about results by key over HTTP, as of the last commit or a savepoint, until Ctrl-C. Reads the lake, and writes nothing to it.

    Without OUTPUT all outputs with a key can be asked.
    """
    console = Console(as_json=invocation.json)
    opened = opened_lake(invocation, console)
    try:
        from floodmark.serve.server import put_answers_first, serving
    except ModuleNotFoundError as error:
        fix = "Install it: pip install 'floodmark[serve]'"
        raise SetupError(
            "floodmark serve", "Starlette and uvicorn", f"no {error.name}", fix, code="SETUP-144"
        ) from None
    from floodmark.core.scratch import Scratch
    from floodmark.lake.folder.paths import Lake
    from floodmark.serve.service import Service
    from floodmark.serve.tokens import Tokens, secret_of

    secrets = Tokens([secret_of(text) for text in tokens])
    lake = Lake.of(opened.workspace.settings)
    with Scratch() as scratch:
        service = Service(opened.workspace, lake, scratch, outputs, console.note, apart=True)
        with stopping(console, "the answers at work") as stop, serving(service, secrets, host, port) as address:
            put_answers_first()
            console.say(f"answers at {address}, described there; outputs: {', '.join(service.copies) or 'none'}")
            stop.wait()
    console.document({"lake": opened.lake, "outputs": list(service.copies)})
