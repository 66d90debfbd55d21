"""What a user asks to be otherwise than recorded: the profiler's overhead, the host's speed, what-if edits."""

from collections.abc import Sequence

from tracekit.replay.run import Run
from tracekit.replay.unprofiled import unprofiled
from tracekit.replay.whatif import WhatIf, apply, read


def asked(what_if: Sequence[str], host_speed: str | float | None = None) -> list[str]:
    """The edits asked for, in order; refused here, before a trace is read, if they can't be meant.

    Args:
        what_if: Edits such as ``no-sync(aten::item)``.
        host_speed: How many times as fast the CPU is, or by kind of work, ``python=1.3,launch=1``.

    Raises:
        WhatIfError: An edit is unknown, or wrongly written.
    """
    for edit in what_if:
        read(edit)
    if host_speed is None:
        return [*what_if]
    faster = f"host-speed({host_speed})"
    read(faster, f"--host-speed {host_speed}", "SPEED, or python=SPEED,op=SPEED,launch=SPEED")
    return [faster, *what_if]


def edit(run: Run, edits: Sequence[str], unprofiled_step_us: float | None = None) -> WhatIf:
    """Apply edits, after the profiler's overhead is taken out if the step without the profiler is given.

    Args:
        run: The run.
        edits: As :func:`asked` gives them.
        unprofiled_step_us: The step without the profiler.

    Raises:
        TracekitError: That step can't be meant, or an edit finds nothing to change.
    """
    return apply(run if unprofiled_step_us is None else unprofiled(run, unprofiled_step_us), edits)
