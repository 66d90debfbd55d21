"""Traces that are refused for what they hold, and what of a trace was not usable."""

from tracekit.messages.model import Severity, Template

TIME_BASE_ABSURD = Template(
    "time-base-absurd",
    Severity.ERROR,
    "{path} is no PyTorch profiler trace: its baseTimeNanoseconds is {base:.40}.",
)
EVENTS_WITHOUT_TIMES = Template(
    "events-without-times",
    Severity.ERROR,
    "{path} holds {events:,} events, but none with a usable time.",
    "Record the trace again.",
)
TRACE_EMPTY = Template(
    "trace-empty",
    Severity.ERROR,
    "{path} holds no GPU activity and no CPU ops.",
    "Is it a trace of torch.profiler?",
)
ALL_KERNELS_LOST = Template(
    "all-kernels-lost",
    Severity.ERROR,
    "{path} holds {launches:,} launches but no GPU activity: the profiler lost the kernels.",
    "Record fewer steps; see that no other profiler uses the GPU (nsys, ncu, DCGM), and that CUPTI fits the driver.",
)
TRACE_OF_OTHER_DEVICE = Template(
    "trace-of-other-device",
    Severity.ERROR,
    "{path} holds no GPU activity in a category that is read. Left out: {categories:list}.",
    "Devices of CUDA, ROCm and XPU are read.",
)
TRACE_WITHOUT_GPU = Template(
    "trace-without-gpu",
    Severity.ERROR,
    "{path} holds {ops:,} CPU ops but no GPU activity.",
    "Record it where PyTorch finds a GPU, with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
)
LAUNCHES_WITHOUT_KERNELS = Template(
    "launches-without-kernels",
    Severity.ERROR,
    "{path} is damaged: {missing:,} of {launches:,} launches have no kernel in it, and {lost:,} events can't be read, "
    "the first at byte {offset:,}.",
    "Copy or record the file again.",
)
TRACES_MERGED = Template(
    "traces-merged",
    Severity.ERROR,
    "{path} is merged from the traces of {processes} processes.",
    "Give the files that the ranks wrote, or the folder they are in.",
)

RANKS_IN_ONE_FILE = Template(
    "ranks-in-one-file",
    Severity.WARNING,
    "{path} holds the traces of {ranks:count rank}, which say their ranks: read as if each were a file.",
)
RANKS_BY_DEVICE = Template(
    "ranks-by-device",
    Severity.WARNING,
    "{path} holds the traces of {ranks:count rank}, told apart and numbered by their GPUs; {left_out:count event} of "
    "other processes left out.",
    "Give a file per rank if that is wrong: trace_rank0.json, trace_rank1.json.",
)
RANKS_SHARE_GPU = Template(
    "ranks-share-gpu",
    Severity.WARNING,
    "{path} holds the traces of {ranks:count process}, read as ranks; several ran on one GPU, so their times hold one "
    "another's work; {left_out:count event} of other processes left out.",
    "Give each process a GPU of its own, or record each by itself.",
)

EVENTS_LOST = Template(
    "events-lost",
    Severity.WARNING,
    "{lost:,} of {events:,} events lost at byte {offset:,}: the file is damaged.",
)
EVENTS_REPAIRED = Template(
    "events-repaired", Severity.WARNING, "{repaired:,} of {events:,} events had invalid JSON and were repaired."
)
EVENTS_CUT = Template(
    "events-cut", Severity.WARNING, "The file is cut short after {length:,} bytes: events may be missing."
)
STEPS_CUT = Template(
    "steps-cut",
    Severity.WARNING,
    "Steps {steps:list} left out: the file ends before all of their work.",
    "Copy or record the file again.",
)
DATA_BEHIND_TRACE = Template(
    "data-behind-trace",
    Severity.WARNING,
    "Something follows the end of the trace at byte {offset:,} and was not read.",
    "Give traces of several ranks as a file each, if they don't say their ranks.",
)
METADATA_LOST = Template(
    "metadata-lost",
    Severity.WARNING,
    "Top-level keys of the file are damaged: GPU, rank or time base may be missing.",
)
EVENTS_UNTIMED = Template("events-untimed", Severity.WARNING, "{events:count event} without a time left out.")
EVENTS_DISTANT = Template(
    "events-distant",
    Severity.WARNING,
    "{events:count event} left out, more than a week from the others.",
)
EVENTS_BACKWARD = Template(
    "events-backward",
    Severity.WARNING,
    "{events:count event} with an end before the beginning: the duration is set to zero.",
)
TIMES_ABSOLUTE = Template(
    "times-absolute",
    Severity.NOTE,
    "{events:count event} whose time counts from 1970 by itself: baseTimeNanoseconds isn't added.",
)
RANGES_WITHOUT_THREAD = Template(
    "ranges-without-thread",
    Severity.WARNING,
    "{ranges:count named range} left out, whose process or thread isn't a number.",
)
STEP_MARKS_UNNUMBERED = Template(
    "step-marks-unnumbered",
    Severity.WARNING,
    "{marks:count ProfilerStep mark} left out, whose number is missing or too long.",
)
OP_INPUTS_MALFORMED = Template(
    "op-inputs-malformed",
    Severity.WARNING,
    "The inputs of {ops:count op} left out, as they aren't written as the profiler does.",
)
ACTIVITY_SIZES_IMPOSSIBLE = Template(
    "activity-sizes-impossible",
    Severity.WARNING,
    "The {column} of {events:count event} on the GPU left out, as they are impossible.",
)
DEVICE_NOT_RECORDED = Template(
    "device-not-recorded",
    Severity.WARNING,
    "The trace doesn't describe its GPU (no deviceProperties).",
    "Name it with {--source-gpu}.",
)
OPS_NOT_RECORDED = Template(
    "ops-not-recorded",
    Severity.WARNING,
    "No CPU ops were recorded: kernels can't be told apart by op or shape.",
    "Record with ProfilerActivity.CPU.",
)
SHAPES_NOT_RECORDED = Template(
    "shapes-not-recorded",
    Severity.WARNING,
    "Shapes were not recorded: kernels are scaled by class, not modelled.",
    "Record with record_shapes=True.",
)
STACKS_NOT_RECORDED = Template(
    "stacks-not-recorded",
    Severity.WARNING,
    "No Python calls were recorded: kernels have no module or Python line.",
    "Record with with_stack=True.",
)
