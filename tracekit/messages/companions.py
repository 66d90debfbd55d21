"""Files beside a trace: execution traces and traces of CUDA graph captures."""

from tracekit.messages.model import Severity, Template

EXECUTION_TRACE_TOO_LARGE = Template(
    "execution-trace-too-large", Severity.ERROR, "{path} holds more than {limit_bytes}."
)
EXECUTION_TRACE_MALFORMED = Template(
    "execution-trace-malformed",
    Severity.ERROR,
    "{path} is no execution trace ({reason}).",
    "Record one with torch.profiler's ExecutionTraceObserver.",
)
EXECUTION_TRACE_SCHEMA = Template(
    "execution-trace-schema",
    Severity.ERROR,
    "{path} is no execution trace that is read: its schema is {schema!r:.40}; known are 1.0 and 1.1.",
    "Record one with torch.profiler's ExecutionTraceObserver.",
)
EXECUTION_TRACE_INVALID = Template(
    "execution-trace-invalid",
    Severity.ERROR,
    "{path} is no valid JSON: {reason}.",
    "Copy or record the file again.",
)
EXECUTION_TRACE_WITHOUT_OPS = Template(
    "execution-trace-without-ops",
    Severity.ERROR,
    "{trace} holds no CPU ops that {path} could be joined to.",
    "Record it with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
)
EXECUTION_TRACE_OF_OTHER_PROCESS = Template(
    "execution-trace-of-other-process",
    Severity.ERROR,
    "{path} is of process {process}, {trace} of process {processes:list}.",
    "Give the execution trace that was recorded together with this trace, of the same rank.",
)
EXECUTION_TRACE_WITHOUT_COMMON_IDS = Template(
    "execution-trace-without-common-ids",
    Severity.ERROR,
    "None of the record function ids of {trace} is in {path}.",
    "Give the execution trace that was recorded together with this trace, of the same rank.",
)
EXECUTION_TRACE_OPS_DIFFER = Template(
    "execution-trace-ops-differ",
    Severity.ERROR,
    "{path} is of another run than {trace}: {differing:,} of {common:,} record function ids belong to ops of another "
    "name.",
    "Give the execution trace that was recorded together with this trace, of the same rank.",
)
EXECUTION_TRACE_SHAPES_DIFFER = Template(
    "execution-trace-shapes-differ",
    Severity.ERROR,
    "{path} is of another run than {trace}: its {op} has other shapes.",
    "Give the execution trace that was recorded together with this trace, of the same rank.",
)
EXECUTION_TRACE_WITHOUT_IDS = Template(
    "execution-trace-without-ids",
    Severity.ERROR,
    "{trace} has no record function ids, and its ops aren't exactly those of {path}.",
    "Record both anew with PyTorch 2.3 or newer, with the ExecutionTraceObserver given to the profiler.",
)
EXECUTION_TRACE_SKIPPED = Template(
    "execution-trace-skipped", Severity.WARNING, "The execution trace was left out. {error}"
)
EXECUTION_TRACE_JOINED = Template(
    "execution-trace-joined",
    Severity.WARNING,
    "Shapes of {ops:count op} and sizes of {collectives:count collective} were filled in from {path}.",
)

CAPTURE_SKIPPED = Template("capture-skipped", Severity.WARNING, "The capture trace was left out. {error}")
CAPTURE_JOINED = Template(
    "capture-joined",
    Severity.WARNING,
    "Ops and shapes of {known_kernels:,} of {kernels:,} kernels in {known_replays:,} of {replays:,} graph replays come "
    "from the capture in {path}.",
)
CAPTURE_PADDED = Template(
    "capture-padded",
    Severity.WARNING,
    "{replays:count graph replay} taken as padded, such as {size} as captured for {captured_for}.",
)
CAPTURES_AMBIGUOUS = Template(
    "captures-ambiguous",
    Severity.WARNING,
    "{replays:count graph replay} with captures of different shapes that fit: the kernels stay without shapes.",
)
CAPTURES_WITHOUT_MATCH = Template(
    "captures-without-match",
    Severity.WARNING,
    "{unmatched:,} of {replays:,} graph replays fit none of the captures that were given.",
)
