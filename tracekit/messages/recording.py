"""Recording a trace with PyTorch's profiler."""

from tracekit.messages.model import Severity, Template

PYTORCH_MISSING = Template(
    "pytorch-missing",
    Severity.ERROR,
    "Recording needs PyTorch, which isn't installed here.",
    "`pip install torch`",
)
PLAN_EMPTY = Template(
    "plan-empty",
    Severity.ERROR,
    "{plan} records nothing.",
    "Give counts of steps of 0 or more, and at least one active step.",
)
STEPS_TOO_FEW = Template(
    "steps-too-few",
    Severity.ERROR,
    "The program took {steps} steps, and recording begins with step {first}.",
    "Let it take more, or record earlier: wait=1, timed=0, warmup=1, active=1 takes three.",
)
STEPS_NOT_ENDED = Template(
    "steps-not-ended",
    Severity.ERROR,
    "No optimizer stepped, and the calls of the model kept gradients as in training: no step ended.",
    "Say {--step-end} forward, or run the inference under torch.no_grad().",
)
SCRIPT_NOT_FOUND = Template(
    "script-not-found", Severity.ERROR, "{script}: there is no such script.", "A module is named with -m."
)
RECORDING_EXISTS = Template(
    "recording-exists",
    Severity.ERROR,
    "{path} exists already.",
    "Choose another folder, or overwrite it: --force in front of the script, overwrite=True in Python.",
)
RECORDING_NOT_WRITTEN = Template(
    "recording-not-written", Severity.ERROR, "{path} can't be written: {reason}.", "Is the disk full?"
)
RECORDING_FOLDER_NOT_MADE = Template("recording-folder-not-made", Severity.ERROR, "{path} can't be made: {reason}.")

RECORDING_PLANNED = Template(
    "recording-planned",
    Severity.NOTE,
    "{wait} steps of warm-up, {timed} timed without the profiler, {warmup} to warm it up, {active} recorded",
)
RECORDING_WITHOUT_GPU = Template(
    "recording-without-gpu",
    Severity.WARNING,
    "PyTorch finds no GPU on this machine: nothing can be predicted from what is recorded here",
)
RECORDING_WRITTEN = Template("recording-written", Severity.NOTE, "wrote {path}, {size_bytes}")
RECORDING_WRITTEN_AND_TIMED = Template(
    "recording-written-and-timed",
    Severity.NOTE,
    "wrote {path}, {size_bytes}; a step takes {step_time_us} without the profiler",
)
RECORDING_UNGRADED = Template(
    "recording-ungraded",
    Severity.NOTE,
    "see how good it is where tracekit is installed: tracekit doctor {path}",
)
RECORDING_GRADED = Template("recording-graded", Severity.NOTE, "grade {grade}")
RECORDING_GRADED_WITH_FIX = Template("recording-graded-with-fix", Severity.NOTE, "grade {grade}: {fix}")
