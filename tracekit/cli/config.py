"""``tracekit config``: defaults of options, and where they are read from."""

import typer

from tracekit.cli.options import Json


def config(json: Json = False) -> None:
    """Where defaults of options are read from, and what they are. The command line wins over them.

    A file tracekit.toml in the working directory goes before the user's; TRACEKIT_CONFIG names another in place of
    both. In such a file:

    gpu = ["h100-sxm", "l40s"] or cluster = "8xh100-sxm": targets where none is named

    price = { h100-sxm = 2.49 } or prices = "prices.toml": dollars for an hour of one GPU

    source_gpu = "a100-sxm-80gb": the GPU of traces that don't tell theirs

    host = "typical": the target's CPU

    Example: tracekit config
    """
    from tracekit.cli.config_file import list_config_files, read_config
    from tracekit.cli.output import print_line
    from tracekit.render.json import dump_document

    found = read_config()
    if json:
        files = [{"path": str(path.absolute()), "exists": path in found.files} for path in list_config_files()]
        origins = {key: str(path.absolute()) for key, path in found.origins.items()}
        typer.echo(dump_document({"files": files, "values": dict(found.values), "origins": origins}), nl=False)
        return
    for path in list_config_files():
        print_line(f"{path.absolute()}{'' if path in found.files else ' (there is none)'}")
    for key, value in found.values.items():
        shown = value if isinstance(value, str) else ", ".join(value)
        print_line(f"{key:<11}{shown}  (from {found.origins[key]})")
