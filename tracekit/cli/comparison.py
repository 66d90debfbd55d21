"""Commands that compare: ``compare``, and ``scoreboard``, which keeps how predictions came out."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.bounds import MAX_REPORT_BYTES
from tracekit.cli.arguments import Force, Json, Top, complete_gpus, expand_groups
from tracekit.cli.command import Reading, Writing
from tracekit.messages import front_ends, requests
from tracekit.numbers import parse_number
from tracekit.request import Panel, StepOptions

if TYPE_CHECKING:
    from tracekit.reporting.comparison import Comparison, ComparisonSide

EXIT_CHANGED = 3
PREDICTION_HEAD_BYTES = 200


def _parse_limit(text: str | None) -> float | None:
    if text is None:
        return None
    limit = parse_number(text.strip().removesuffix("%"))
    if limit is None or not 0 <= limit < inf:
        raise typer.BadParameter("give a percentage, such as 5%")
    return limit


@dataclass(frozen=True, kw_only=True)
class CompareCommand(Reading, Writing):
    """A comparison of two sides."""


@expand_groups
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A trace, or what predict wrote as .json.", show_default=False)],
    b: Annotated[str, typer.Argument(metavar="B", help="The other one.", show_default=False)],
    request: StepOptions,
    command: CompareCommand,
    gpu: Annotated[
        str | None,
        typer.Option(
            "--gpu",
            "-g",
            metavar="NAME",
            help="Which of a prediction's GPUs or clusters is meant.",
            rich_help_panel=Panel.INPUT,
            autocompletion=complete_gpus,
        ),
    ] = None,
    fail_above: Annotated[
        str | None,
        typer.Option(
            "--fail-above",
            metavar="PCT",
            help="Exit with 3 if B takes longer for the same work, or the prediction is off, by more.",
            rich_help_panel=Panel.OUTPUT,
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Keep how the prediction came out on this machine, without names and paths: `tracekit scoreboard`.",
            rich_help_panel=Panel.OUTPUT,
        ),
    ] = False,
    top: Top = 10,
) -> None:
    """What changed between two traces, or how far a prediction was off from the trace recorded since.

    Example: tracekit compare before.json.gz after.json.gz --fail-above 5%

    Example: tracekit compare prediction.json measured.json.gz --gpu h100-sxm
    """
    from tracekit.cli.output import say
    from tracekit.render import compare as render
    from tracekit.render.html.comparison import render_comparison_page
    from tracekit.render.private_details import remove_details
    from tracekit.render.screen import as_text
    from tracekit.reporting.comparison import compare as put_together

    limit = _parse_limit(fail_above)
    paths = command.check_outputs((".json", ".html", ".md", ".txt"), (a, b))
    with command.show_progress() as stage:
        sides, names = [], set()
        for place in (a, b):
            stage(requests.READING_SIDE(place=place))
            side, private = _read_side(place, gpu, request.step_range, command)
            sides.append(side)
            names |= private
    comparison = put_together(*sides)
    if paths:
        forms: dict[str, Callable[[Comparison, int], str]] = {
            ".json": render.as_json,
            ".html": render_comparison_page,
            ".md": render.as_markdown,
            ".txt": lambda one, rows: as_text(render.render_comparison(one, rows)),
        }
        shared = remove_details(comparison, names)
        command.write({path: forms[path.suffix](shared, top) for path in paths})
    command.emit(render.render_comparison(comparison, top), lambda: render.as_json(comparison, top))
    if keep:
        say(_keep_outcome(comparison))
    if limit is not None and (off := _compute_deviation_pct(comparison)) > limit:
        say(f"tracekit: {off:.1f} % is more than the {limit:g} % of --fail-above")
        raise typer.Exit(EXIT_CHANGED)


def _keep_outcome(comparison: "Comparison") -> str:
    """Keep how a prediction came out; return what became of it.

    Raises:
        TracekitError: The two sides aren't a prediction and the trace recorded since, or it can't be kept.
    """
    from tracekit import scoreboard
    from tracekit.messages.predictions import OUTCOME_KEPT, OUTCOME_KNOWN
    from tracekit.reporting.comparison import make_outcome

    is_new = scoreboard.keep(make_outcome(comparison))
    return str(OUTCOME_KEPT(path=str(scoreboard.get_file())) if is_new else OUTCOME_KNOWN())


def _compute_deviation_pct(comparison: "Comparison") -> float:
    """Return the deviation in percent that ``--fail-above`` limits.

    Raises:
        TracekitError: The two sides don't determine the deviation.
    """
    from tracekit.errors import TracekitError

    off = comparison.longer_pct if comparison.prediction_and_measurement is None else comparison.error_pct
    if off is None:
        between = (
            "these two" if comparison.prediction_and_measurement is None else "this prediction and this measurement"
        )
        raise TracekitError(front_ends.DEVIATION_UNKNOWN(sides=between))
    return abs(off) if comparison.prediction_and_measurement else off


def _read_side(place: str, gpu: str | None, steps: str | None, command: Reading) -> tuple["ComparisonSide", set[str]]:
    """Read a prediction if the file is one, else the measured run of a trace; and the private names in it."""
    from tracekit.cli.output import list_private_names
    from tracekit.reporting import saved_prediction
    from tracekit.reporting.comparison import to_side

    path = Path(place)
    if path.suffix == ".json" and path.is_file():
        with path.open("rb") as file:
            head = file.read(PREDICTION_HEAD_BYTES)
            if saved_prediction.is_prediction(head):
                return saved_prediction.read_prediction(head + file.read(MAX_REPORT_BYTES), place, gpu), set()
    trace = command.read([place], lambda stage: None)
    return to_side(trace, steps=steps), list_private_names(trace)


Export = Annotated[
    Path | None,
    typer.Option("--export", metavar="FILE", help="Write all outcomes as .md or .json, to paste into an issue."),
]


Import = Annotated[
    list[Path] | None,
    typer.Option("--import", metavar="FILE", help="Add outcomes that --export wrote as .json, a team's. Repeatable."),
]


def scoreboard(export: Export = None, add: Import = None, json: Json = False, force: Force = False) -> None:
    """How predictions came out that `tracekit compare --keep` kept: on this machine, without names and paths.

    Example: tracekit scoreboard --export outcomes.md

    Example: tracekit scoreboard --import team.json
    """
    from tracekit import scoreboard as board
    from tracekit.cli.output import check_outputs, emit, say, write_files
    from tracekit.messages.predictions import OUTCOMES_ADDED
    from tracekit.prediction.experience import identify_weights
    from tracekit.render import screens as render
    from tracekit.scoreboard.law_offsets import summarize_laws
    from tracekit.scoreboard.summary import summarize_outcomes

    check_outputs([export] if export else (), force, (".md", ".json"))
    given = [one for path in add or () for one in board.read_outcomes(path)]
    if add:
        say(str(OUTCOMES_ADDED(new=board.add_all(given), given=len(given), path=str(board.get_file()))))
    found = board.load()
    rows = summarize_outcomes(found.outcomes, identify_weights())
    laws = summarize_laws(found.outcomes, identify_weights())
    for warning in found.warnings:
        say(f"warning: {warning}")
    if export is not None:
        form = render.render_markdown if export.suffix == ".md" else render.serialize_scoreboard
        write_files({export: form(rows, found.outcomes, laws)}, quiet=False)
    emit(
        render.render_scoreboard(rows, board.get_file(), laws),
        lambda: render.serialize_scoreboard(rows, found.outcomes, laws),
        json=json,
    )
