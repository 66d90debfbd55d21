"""``tracekit gpus``: the known GPUs."""

from typing import Annotated

import typer

from tracekit.cli.completion import complete_gpus
from tracekit.cli.options import Json


def gpus(
    name: Annotated[
        str | None, typer.Argument(help="One GPU, for all its figures and their sources.", autocompletion=complete_gpus)
    ] = None,
    json: Json = False,
) -> None:
    """The GPUs that tracekit knows, or one GPU's figures with their sources.

    Example: tracekit gpus h100

    Example: tracekit gpus 'NVIDIA L40S' --json
    """
    from predictors import list_gpus, load_gpu, resolve_gpu
    from tracekit.cli.output import emit
    from tracekit.render import gpus as render

    if name is None:
        known = [load_gpu(slug) for slug in list_gpus()]
        emit(render.render_gpu_table(known), lambda: render.serialize_gpus(known), json=json)
    else:
        found = resolve_gpu(name)
        emit(render.render_gpu_card(found), lambda: render.serialize_gpu(found), json=json)
