"""``tracekit hosts``: the known hosts."""

from tracekit.cli.options import Json


def hosts(json: Json = False) -> None:
    """The hosts that tracekit knows, by name for `--host`: how fast traces show them to be.

    Example: tracekit hosts
    """
    from tracekit.cli.output import emit
    from tracekit.hosts.known import list_hosts
    from tracekit.render import hosts as render

    emit(render.render_host_table(list_hosts()), lambda: render.serialize_hosts(list_hosts()), json=json)
