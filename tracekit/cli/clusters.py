"""``tracekit clusters``: the known clusters."""

from typing import Annotated

import typer

from tracekit.cli.completion import complete_clusters
from tracekit.cli.options import Json


def clusters(
    name: Annotated[
        str | None,
        typer.Argument(help="One cluster, for all its figures and their sources.", autocompletion=complete_clusters),
    ] = None,
    json: Json = False,
) -> None:
    """The clusters and cloud instances that tracekit knows, or one cluster's figures with their sources.

    Example: tracekit clusters 4x8xh100-sxm@ndr400
    """
    from tracekit.cli.output import emit
    from tracekit.comm import list_clusters, load_cluster
    from tracekit.render import clusters as render

    if name is None:
        known = [load_cluster(slug) for slug in list_clusters()]
        emit(render.render_cluster_table(known), lambda: render.serialize_clusters(known), json=json)
    else:
        found = load_cluster(name)
        emit(render.render_cluster_card(found), lambda: render.serialize_cluster(found), json=json)
