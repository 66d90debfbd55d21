"""What can be wrong with a program to capture."""

from tracekit.messages.model import Severity, Template

CAPTURE_NEEDS_TORCH = Template(
    "capture-needs-torch",
    Severity.ERROR,
    "PyTorch isn't installed here.",
    "Its CPU build is enough: pip install torch.",
)
CAPTURE_NEEDS_TRANSFORMERS = Template(
    "capture-needs-transformers",
    Severity.ERROR,
    "Hugging Face's transformers isn't installed here.",
    "Run pip install transformers.",
)
PACKAGE_UNUSABLE = Template(
    "package-unusable",
    Severity.ERROR,
    "{package} is installed here, but can't be imported: {error}.",
    "Install what it lacks.",
)
CAPTURE_FAILED = Template(
    "capture-failed",
    Severity.ERROR,
    "{program} doesn't run on tensors without data: {error}.",
    "Where it asks for a value (.item(), a mask's contents, sizes of data), give it a fixed one.",
)
RECURRENCE_UNKNOWN = Template(
    "recurrence-unknown",
    Severity.ERROR,
    "The program has recurrent layers, which cuDNN runs in kernels of its own: their work isn't known.",
    "Record a trace of it, or capture the rest.",
)
RECORDING_WITHOUT_VALUES = Template(
    "recording-without-values",
    Severity.ERROR,
    "{path} holds no GPU activity, and of its ops only shapes: strides and paddings of convolutions are missing.",
    "Record it with PyTorch 2.1 or later, or on a GPU.",
)
MEASURED_BY_CAPTURE = Template(
    "measured-by-capture", Severity.ERROR, "{path} was captured itself: nothing in it is measured.", "Give a recording."
)
MEASURED_BY_UNKNOWN_GPU = Template(
    "measured-by-unknown-gpu",
    Severity.ERROR,
    "{path} doesn't tell which GPU it was recorded on.",
    "Record it with a PyTorch that does, from 1.12 on.",
)
MEASURED_WITHOUT_SHAPES = Template(
    "measured-without-shapes",
    Severity.ERROR,
    "The ops of {path} have no shapes, so they can't be matched to the program's.",
    "Record it with record_shapes=True.",
)
CAPTURE_EMPTY = Template(
    "capture-empty", Severity.ERROR, "{program} launches no kernels.", "Return what a step computes."
)
OPTIMIZER_UNKNOWN = Template(
    "optimizer-unknown", Severity.ERROR, "{--optimizer} {optimizer!r} is unknown.", "Known are {known:list}."
)
OPTIMIZER_WITHOUT_TRAINING = Template(
    "optimizer-without-training", Severity.ERROR, "{--optimizer} goes with {--train}.", "Give both, or none."
)
AUTOCAST_UNKNOWN = Template(
    "autocast-unknown", Severity.ERROR, "{--autocast} {autocast!r} is unknown.", "Known are bf16 and fp16."
)
DTYPE_UNKNOWN = Template("dtype-unknown", Severity.ERROR, "{--dtype} {dtype!r} is unknown.", "Known are {known:list}.")
PROGRAM_MALFORMED = Template(
    "program-malformed",
    Severity.ERROR,
    "{program!r} names no program.",
    "Give FILE.py:FUNCTION, a function that returns a model and its inputs, or a model's config.json.",
)
PROGRAM_UNREADABLE = Template(
    "program-unreadable", Severity.ERROR, "{path} can't be read as a program: {error}.", "Check the file."
)
FUNCTION_MISSING = Template(
    "function-missing", Severity.ERROR, "{path} has no function {function}.", "It has {functions:list}."
)
INPUTS_MISSING = Template(
    "inputs-missing",
    Severity.ERROR,
    "{function} returned {found}, not a model and its inputs.",
    "Return such as (model, tokens) or (model, tokens, mask).",
)
CONFIG_MODEL_UNKNOWN = Template(
    "config-model-unknown",
    Severity.ERROR,
    "transformers can't build a model from {path}: {error}.",
    "Check its model_type and the version of transformers.",
)
LONGEST_OF_CONFIG = Template(
    "longest-of-config",
    Severity.ERROR,
    "{--longest} needs a config and a batch that is a number.",
    "Give a config.json, and {--batch} 1 or another number.",
)
SEQUENCE_FITS_NOWHERE = Template(
    "sequence-fits-nowhere",
    Severity.ERROR,
    "Not even the shortest sequence fits into {gpu}: its tensors take {least_bytes} at once.",
    "Give a smaller {--batch}, or a GPU with more memory.",
)
BATCH_MALFORMED = Template(
    "batch-malformed", Severity.ERROR, "{--batch} {batch!r} is no batch.", "Give a number of samples, or max."
)
BATCH_OF_FUNCTION = Template(
    "batch-of-function",
    Severity.ERROR,
    "The function chooses its batch itself.",
    "Give it an argument batch, or leave {--batch} out.",
)
OPTIONS_OF_PROGRAMS = Template(
    "options-of-programs",
    Severity.ERROR,
    "{--train}, {--optimizer}, {--autocast}, {--tf32}, {--compile}, {--cuda-graph}, {--seq}, {--dtype}, "
    "{--bottom-mlp}, {--top-mlp} and {--measured} are for programs that are captured, not for traces.",
    "Leave them out, or give FILE.py:FUNCTION or a model's config.json.",
)
TABLES_OF_PROGRAMS = Template(
    "tables-of-programs",
    Severity.ERROR,
    "Here {--table} is for programs that are captured, not for traces.",
    "Leave it out, or give a DLRM's configuration.",
)
BATCH_FITS_NOWHERE = Template(
    "batch-fits-nowhere",
    Severity.ERROR,
    "One sample needs {least_bytes} of memory, more than a {gpu} has.",
    "Give fewer tokens with {--seq}, or leave that GPU out.",
)
CAPTURE_TARGET_NEEDED = Template(
    "capture-target-needed", Severity.ERROR, "No GPU is given.", "Give one or more: {--gpu} h100-sxm."
)
