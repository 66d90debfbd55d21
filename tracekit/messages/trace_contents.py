"""Traces that are refused for what they hold, and what of a trace was not usable."""

from tracekit.messages.model import error, name_templates, note, warning

TIME_BASE_ABSURD = error("{path} is no PyTorch profiler trace: its baseTimeNanoseconds is {base:.40}.")
EVENTS_WITHOUT_TIMES = error("{path} holds {events:,} events, but none with a usable time.", "Record the trace again.")
TRACE_EMPTY = error("{path} holds no GPU activity and no CPU ops.", "Is it a trace of torch.profiler?")
ALL_KERNELS_LOST = error(
    "{path} holds {launches:,} launches but no GPU activity: the profiler lost the kernels.",
    "Record fewer steps; see that no other profiler uses the GPU (nsys, ncu, DCGM), and that CUPTI fits the driver.",
)
TRACE_OF_OTHER_DEVICE = error(
    "{path} holds no GPU activity in a category that is read. Left out: {categories:list}.",
    "Devices of CUDA, ROCm and XPU are read.",
)
TRACE_WITHOUT_GPU = error(
    "{path} holds {ops:,} CPU ops but no GPU activity.",
    "Record it where PyTorch finds a GPU, with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
)
LAUNCHES_WITHOUT_KERNELS = error(
    "{path} is damaged: {missing:,} of {launches:,} launches have no kernel in it, and {lost:,} events can't be read, "
    "the first at byte {offset:,}.",
    "Copy or record the file again.",
)
TRACES_MERGED = error(
    "{path} is merged from the traces of {processes} processes.",
    "Give the files that the ranks wrote, or the folder they are in.",
)

RANKS_IN_ONE_FILE = warning(
    "{path} holds the traces of {ranks:count rank}, which say their ranks: read as if each were a file."
)
RANKS_BY_DEVICE = warning(
    "{path} holds the traces of {ranks:count rank}, told apart and numbered by their GPUs; {left_out:count event} of "
    "other processes left out.",
    "Give a file per rank if that is wrong: trace_rank0.json, trace_rank1.json.",
)
RANKS_SHARE_GPU = warning(
    "{path} holds the traces of {ranks:count process}, read as ranks; several ran on one GPU, so their times hold one "
    "another's work; {left_out:count event} of other processes left out.",
    "Give each process a GPU of its own, or record each by itself.",
)

EVENTS_LOST = warning("{lost:,} of {events:,} events lost at byte {offset:,}: the file is damaged.")
EVENTS_REPAIRED = warning("{repaired:,} of {events:,} events had invalid JSON and were repaired.")
EVENTS_CUT = warning("The file is cut short after {length:,} bytes: events may be missing.")
STEPS_CUT = warning(
    "Steps {steps:list} left out: the file ends before all of their work.", "Copy or record the file again."
)
DATA_BEHIND_TRACE = warning(
    "Something follows the end of the trace at byte {offset:,} and was not read.",
    "Give traces of several ranks as a file each, if they don't say their ranks.",
)
METADATA_LOST = warning("Top-level keys of the file are damaged: GPU, rank or time base may be missing.")
EVENTS_UNTIMED = warning("{events:count event} without a time left out.")
EVENTS_DISTANT = warning("{events:count event} left out, more than a week from the others.")
EVENTS_BACKWARD = warning("{events:count event} with an end before the beginning: the duration is set to zero.")
TIMES_ABSOLUTE = note("{events:count event} whose time counts from 1970 by itself: baseTimeNanoseconds isn't added.")
RANGES_WITHOUT_THREAD = warning("{ranges:count named range} left out, whose process or thread isn't a number.")
STEP_MARKS_UNNUMBERED = warning("{marks:count ProfilerStep mark} left out, whose number is missing or too long.")
OP_INPUTS_MALFORMED = warning("The inputs of {ops:count op} left out, as they aren't written as the profiler does.")
ACTIVITY_SIZES_IMPOSSIBLE = warning("The {column} of {events:count event} on the GPU left out, as they are impossible.")
DEVICE_NOT_RECORDED = warning(
    "The trace doesn't describe its GPU (no deviceProperties).", "Name it with {--source-gpu}."
)
OPS_NOT_RECORDED = warning(
    "No CPU ops were recorded: kernels can't be told apart by op or shape.", "Record with ProfilerActivity.CPU."
)
SHAPES_NOT_RECORDED = warning(
    "Shapes were not recorded: kernels are scaled by class, not modelled.", "Record with record_shapes=True."
)
STACKS_NOT_RECORDED = warning(
    "No Python calls were recorded: kernels have no module or Python line.", "Record with with_stack=True."
)

name_templates(globals())
