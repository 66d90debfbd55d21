"""``tracekit cache``: the decoded traces that are kept on this machine."""

from typing import Annotated

import typer

from tracekit.cli.options import Json

Clear = Annotated[bool, typer.Option("--clear", help="Remove all of them.")]


def cache(clear: Clear = False, json: Json = False) -> None:
    """Decoded traces that are kept on this machine: where, how many, how large.

    Example: tracekit cache --clear
    """
    from tracekit.ingest import cache as entries

    found = entries.clear() if clear else entries.usage()
    if json:
        import dataclasses
        import json as text

        typer.echo(text.dumps({"schema_version": 1, **dataclasses.asdict(found)}, indent=2, default=str))
        return
    what = f"{found.entries:,} decoded trace{'' if found.entries == 1 else 's'}, {found.size_bytes / 1e6:,.1f} MB"
    typer.echo(f"{'removed' if clear else 'kept':<9}{what}\nwhere    {found.directory}")
