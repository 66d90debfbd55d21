"""``tracekit scoreboard``: how predictions came out."""

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import Force, Json

Export = Annotated[
    Path | None,
    typer.Option("--export", metavar="FILE", help="Write all outcomes as .md or .json, to paste into an issue."),
]


def scoreboard(export: Export = None, json: Json = False, force: Force = False) -> None:
    """How predictions came out that `tracekit compare --keep` kept: on this machine, without names and paths.

    Example: tracekit scoreboard --export outcomes.md
    """
    from tracekit import scoreboard as board
    from tracekit.cli.output import check_outputs, emit, say, write_files
    from tracekit.prediction.experience import identify_weights
    from tracekit.render import scoreboard as render
    from tracekit.scoreboard.summary import summarize_outcomes

    check_outputs([export] if export else (), force, (".md", ".json"))
    found = board.load()
    rows = summarize_outcomes(found.outcomes, identify_weights())
    for warning in found.warnings:
        say(f"warning: {warning}")
    if export is not None:
        form = render.render_markdown if export.suffix == ".md" else render.serialize_scoreboard
        write_files({export: form(rows, found.outcomes)}, quiet=False)
    emit(
        render.render_scoreboard(rows, board.get_file()),
        lambda: render.serialize_scoreboard(rows, found.outcomes),
        json=json,
    )
