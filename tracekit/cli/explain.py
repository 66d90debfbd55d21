"""``tracekit explain``: what a message means, and the pages of the documentation, offline."""

from typing import Annotated

import typer

from tracekit.cli.completion import complete_subjects
from tracekit.cli.options import Json

Subject = Annotated[
    str | None,
    typer.Argument(
        metavar="CODE|PAGE",
        help="The code of an error, warning, note or finding, or a page's name; without it, lists the pages.",
        show_default=False,
        autocompletion=complete_subjects,
    ),
]


def explain(subject: Subject = None, json: Json = False) -> None:
    """What a message means, by the code at its end, or a page of the documentation.

    Example: tracekit explain price-missing

    Example: tracekit explain intervals
    """
    from tracekit.cli.output import emit
    from tracekit.documentation import explain_code, list_pages
    from tracekit.render import documentation as render

    if subject is None:
        pages = list_pages()
        emit(render.render_pages(pages), lambda: render.serialize_pages(pages), json=json)
        return
    found = explain_code(subject.strip("[]"))
    emit(render.render_explanation(found), lambda: render.serialize_explanation(found), json=json)
