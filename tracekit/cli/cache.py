"""``tracekit cache``: decoded traces stored on this machine."""

from typing import Annotated

import typer

from tracekit.cli.options import Json
from tracekit.format import format_quantity

Clear = Annotated[bool, typer.Option("--clear", help="Remove all of them.")]


def cache(clear: Clear = False, json: Json = False) -> None:
    """Decoded traces that are kept on this machine: where, how many, how large.

    Example: tracekit cache --clear
    """
    from dataclasses import asdict

    from tracekit.cli.output import print_line
    from tracekit.ingest import cache as entries
    from tracekit.render.json import dump_document

    found = entries.clear() if clear else entries.measure_usage()
    if json:
        typer.echo(dump_document(asdict(found) | {"directory": str(found.directory)}), nl=False)
        return
    what = f"{format_quantity(found.entries, 'decoded trace')}, {found.size_bytes / 1e6:,.1f} MB"
    print_line(f"{'removed' if clear else 'kept':<9}{what}")
    print_line(f"where    {found.directory}")
