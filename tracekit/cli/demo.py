"""``tracekit demo``: a prediction of a sample trace, to see what comes out."""

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import Force, Quiet

DEMO_TARGETS = ("h100-sxm", "l40s", "mi300x")

DEFAULT_PAGE = Path("demo.html")

Page = Annotated[
    list[Path] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="The page to write; several may be given.",
        show_default=str(DEFAULT_PAGE),
    ),
]


def demo(context: typer.Context, output: Page = None, force: Force = False, quiet: Quiet = False) -> None:
    """Predict a sample trace that comes along on three GPUs, print it, and write it as a page.

    Example: tracekit demo --force
    """
    from tracekit.cli.output import say
    from tracekit.samples import DEMO_SAMPLE, find_samples

    written = [word for path in output or [DEFAULT_PAGE] for word in ("-o", str(path))]
    targets = [argument for gpu in DEMO_TARGETS for argument in ("--gpu", gpu)]
    switches = [name for name, given in (("--force", force), ("--quiet", quiet)) if given]
    sample = find_samples()[DEMO_SAMPLE]
    if not quiet:
        say(f"tracekit predict {sample.name} {' '.join([*targets, *written])}")
    predict = context.parent.command.commands["predict"]  # type: ignore[union-attr]
    predict.main([str(sample), *targets, *written, *switches], standalone_mode=False)
