"""Files beside a trace: execution traces and traces of CUDA graph captures."""

from tracekit.messages.model import error, name_templates, warning

EXECUTION_TRACE_TOO_LARGE = error("{path} holds more than {limit_bytes}.")
EXECUTION_TRACE_MALFORMED = error(
    "{path} is no execution trace ({reason}).", "Record one with torch.profiler's ExecutionTraceObserver."
)
EXECUTION_TRACE_SCHEMA = error(
    "{path} is no execution trace that is read: its schema is {schema!r:.40}; known are 1.0 and 1.1.",
    "Record one with torch.profiler's ExecutionTraceObserver.",
)
EXECUTION_TRACE_INVALID = error("{path} is no valid JSON: {reason}.", "Copy or record the file again.")
EXECUTION_TRACE_WITHOUT_OPS = error(
    "{trace} holds no CPU ops that {path} could be joined to.",
    "Record it with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
)
EXECUTION_TRACE_OF_OTHER_PROCESS = error(
    "{path} is of process {process}, {trace} of process {processes:list}.",
    "Give the execution trace that was recorded together with this trace, of the same rank.",
)
EXECUTION_TRACE_WITHOUT_COMMON_IDS = error(
    "None of the record function ids of {trace} is in {path}.",
    "Give the execution trace that was recorded together with this trace, of the same rank.",
)
EXECUTION_TRACE_OPS_DIFFER = error(
    "{path} is of another run than {trace}: {differing:,} of {common:,} record function ids belong to ops of another "
    "name.",
    "Give the execution trace that was recorded together with this trace, of the same rank.",
)
EXECUTION_TRACE_SHAPES_DIFFER = error(
    "{path} is of another run than {trace}: its {op} has other shapes.",
    "Give the execution trace that was recorded together with this trace, of the same rank.",
)
EXECUTION_TRACE_WITHOUT_IDS = error(
    "{trace} has no record function ids, and its ops aren't exactly those of {path}.",
    "Record both anew with PyTorch 2.3 or newer, with the ExecutionTraceObserver given to the profiler.",
)
EXECUTION_TRACE_SKIPPED = warning("The execution trace was left out. {error}")
EXECUTION_TRACE_JOINED = warning(
    "Shapes of {ops:count op} and sizes of {collectives:count collective} were filled in from {path}."
)

CAPTURE_SKIPPED = warning("The capture trace was left out. {error}")
CAPTURE_JOINED = warning(
    "Ops and shapes of {known_kernels:,} of {kernels:,} kernels in {known_replays:,} of {replays:,} graph replays come "
    "from the capture in {path}."
)
CAPTURE_PADDED = warning("{replays:count graph replay} taken as padded, such as {size} as captured for {captured_for}.")
CAPTURES_AMBIGUOUS = warning(
    "{replays:count graph replay} with captures of different shapes that fit: the kernels stay without shapes."
)
CAPTURES_WITHOUT_MATCH = warning("{unmatched:,} of {replays:,} graph replays fit none of the captures that were given.")

name_templates(globals())
