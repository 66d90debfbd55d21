"""``tracekit view``: show a report in the browser, served and reachable on this machine only."""

import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer


def view(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A report (.html) or a timeline (.json, .json.gz).", show_default=False),
    ],
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="0: any that is free.")] = 0,
    opened: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")] = True,
) -> None:
    """Show a report or a timeline, offline. Serves on 127.0.0.1 until Ctrl-C.

    A timeline needs Perfetto's page: pip install 'tracekit-gpu[view]'.

    Example: tracekit view report.html
    """
    from tracekit.cli.file_server import create_server

    with create_server(file, port) as serving:
        url = f"http://127.0.0.1:{serving.server_port}/"
        typer.echo(url)
        if opened:
            webbrowser.open(url)
        with suppress(KeyboardInterrupt):
            serving.serve_forever()
