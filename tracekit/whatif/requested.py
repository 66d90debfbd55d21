"""Apply what the user requests to change: profiler overhead, host speed, what-if edits."""

from collections.abc import Sequence

from tracekit.analysis.profiler_overhead import remove_profiler_overhead
from tracekit.errors import WhatIfError
from tracekit.messages.what_ifs import HOST_SPEED_MALFORMED
from tracekit.run import MeasuredRun
from tracekit.whatif import WhatIfResult, apply_edits, parse_edit


def parse_edits(what_if: Sequence[str], host_speed: str | float | None = None) -> list[str]:
    """Return the requested edits in order; refuse invalid ones before a trace is read.

    Args:
        what_if: Edits such as ``no-sync(aten::item)``.
        host_speed: Speed of the host as a multiple of the measured one, or by kind of work: ``python=1.3,launch=1``.

    Raises:
        WhatIfError: An edit is unknown or malformed.
    """
    for edit in what_if:
        parse_edit(edit)
    if host_speed is None:
        return [*what_if]
    faster = f"host-speed({host_speed})"
    try:
        parse_edit(faster)
    except WhatIfError as error:
        cause = error.catalogue_message.values["error"]
        raise WhatIfError(HOST_SPEED_MALFORMED(speed=str(host_speed), error=cause)) from None
    return [faster, *what_if]


def apply_requested_edits(
    run: MeasuredRun, edits: Sequence[str], unprofiled_step_us: float | None = None
) -> WhatIfResult:
    """Remove the profiler's overhead if a step time without the profiler is given, then apply the edits.

    Args:
        run: The run.
        edits: Edits of :func:`parse_edits`.
        unprofiled_step_us: Step time without the profiler.

    Raises:
        TracekitError: That step time is impossible, or an edit finds nothing to change.
    """
    return apply_edits(run if unprofiled_step_us is None else remove_profiler_overhead(run, unprofiled_step_us), edits)
