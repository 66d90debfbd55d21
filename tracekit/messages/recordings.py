"""Recording and redacting traces."""

from tracekit.messages.model import error, name_templates, note, warning

PYTORCH_MISSING = error("Recording needs PyTorch, which isn't installed here.", "`pip install torch`")
PLAN_EMPTY = error("{plan} records nothing.", "Give counts of steps of 0 or more, and at least one active step.")
STEPS_TOO_FEW = error(
    "The program took {steps} steps, and recording begins with step {first}.",
    "Let it take more, or record earlier: wait=1, timed=0, warmup=1, active=1 takes three.",
)
STEPS_NOT_ENDED = error(
    "No optimizer stepped, and the calls of the model kept gradients as in training: no step ended.",
    "Say {--step-end} forward, or run the inference under torch.no_grad().",
)
SCRIPT_NOT_FOUND = error("{script}: there is no such script.", "A module is named with -m.")
RECORDING_EXISTS = error(
    "{path} exists already.",
    "Choose another folder, or overwrite it: --force in front of the script, overwrite=True in Python.",
)
RECORDING_NOT_WRITTEN = error("{path} can't be written: {reason}.", "Is the disk full?")
RECORDING_FOLDER_NOT_MADE = error("{path} can't be made: {reason}.")

RECORDING_PLANNED = note(
    "{wait} steps of warm-up, {timed} timed without the profiler, {warmup} to warm it up, {active} recorded"
)
RECORDING_WITHOUT_GPU = warning(
    "PyTorch finds no GPU on this machine: nothing can be predicted from what is recorded here"
)
RECORDING_WRITTEN = note("wrote {path}, {size_bytes}")
RECORDING_WRITTEN_AND_TIMED = note("wrote {path}, {size_bytes}; a step takes {step_time_us} without the profiler")
RECORDING_UNGRADED = note("see how good it is where tracekit is installed: tracekit doctor {path}")
RECORDING_GRADED = note("grade {grade}")
RECORDING_GRADED_WITH_FIX = note("grade {grade}: {fix}")


SECRET_FOUND = warning(
    "The trace carries what looks like {kind} (in its {locations:list}).",
    "Before you share it, write a copy without it with `tracekit redact`.",
)
REDACTION_OF_DAMAGED = error(
    "{path} is no valid JSON: {reason}.", "A damaged trace can't be redacted; nothing was written."
)
REDACTION_NEEDS_NAME = error("What comes from standard input has no name.", "Name the file to write with {--output}.")
REDACTION_OF_SEVERAL = error("{path} and {others} more were given.", "Redact them one by one.")
REDACTION_OF_OTHER_TOOL = error(
    "{path} was written by {tool}: only the JSON of PyTorch's profiler can be redacted.",
    "Nothing was written. `tracekit export` writes its kernels as JSON, which can be.",
)
REDACTION_OF_OTHER_JSON = error("{path} is JSON, but not a PyTorch profiler trace.", "Nothing was written.")
REDACTION_TOO_LARGE = error("{path} holds more than {limit_bytes} of text, too much to redact.", "Record fewer steps.")
SHARED_FILE_PRIVATE = error(
    "{name} would still hold {kinds:list}; nothing was written.",
    "Please report it as a bug; `tracekit redact` and -o write the trace and the page one by one.",
)
SHARED_WRITTEN = note(
    "Wrote {path}: {files:list}.",
    "Names of ops, kernels and annotations are kept: look through them before you share it.",
)


name_templates(globals())
