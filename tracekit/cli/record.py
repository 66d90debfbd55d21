"""``tracekit record``: run a script under the profiler, with the right options."""

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import Quiet

DEFAULT_FOLDER = Path("traces")
PASS_THROUGH_SETTINGS = {"allow_extra_args": True, "allow_interspersed_args": False, "ignore_unknown_options": True}


def record(
    context: typer.Context,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The script, its arguments after it.")],
    module: Annotated[bool, typer.Option("--module", "-m", help="SCRIPT is a module, as after python -m.")] = False,
    output: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", metavar="DIR", help="Where the trace goes.", show_default=str(DEFAULT_FOLDER)),
    ] = None,
    active: Annotated[int, typer.Option("--active", metavar="N", min=1, help="Steps to record.")] = 3,
    wait: Annotated[int, typer.Option("--wait", metavar="N", min=0, help="Steps to leave alone first.")] = 5,
    timed: Annotated[int, typer.Option("--timed", metavar="N", min=0, help="Steps to time without the profiler.")] = 5,
    warmup: Annotated[int, typer.Option("--warmup", metavar="N", min=0, help="Steps for the profiler to warm up.")] = 2,
    step_end: Annotated[
        str, typer.Option("--step-end", metavar="WHAT", help="What ends a step: optimizer, forward or auto.")
    ] = "auto",
    keep_running: Annotated[bool, typer.Option("--keep-running", help="Go on after the trace is written.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Overwrite an earlier trace there.")] = False,
    quiet: Quiet = False,
) -> None:
    """Record a trace of a training or inference script, a file per rank, and grade it.

    A step ends with optimizer.step(), or where nothing is trained with each call of the model.

    The script ends with the last recorded step.

    Example: tracekit record train.py --batch-size 8

    Several ranks: torchrun --nproc-per-node 8 -m tracekit record train.py
    """
    from tracekit.cli.output import take_one_output
    from tracekit.recording import Recording
    from tracekit.recording.plan import RecordingPlan
    from tracekit.recording.script import StepEnd, run_script

    try:
        end = StepEnd(step_end)
    except ValueError as error:
        raise typer.BadParameter(f"{step_end!r} is none of {', '.join(StepEnd)}") from error
    plan = RecordingPlan(wait, timed, warmup, active)
    recording = Recording(take_one_output(output) or DEFAULT_FOLDER, plan=plan, overwrite=force, quiet=quiet)
    run_script(script, context.args, recording, as_module=module, step_end=end, keep_running=keep_running)
