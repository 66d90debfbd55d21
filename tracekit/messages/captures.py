"""What can be wrong with a program to capture."""

from tracekit.messages.model import error, name_templates

CAPTURE_NEEDS_TORCH = error("PyTorch isn't installed here.", "Its CPU build is enough: pip install torch.")
CAPTURE_NEEDS_TRANSFORMERS = error("Hugging Face's transformers isn't installed here.", "Run pip install transformers.")
PACKAGE_UNUSABLE = error("{package} is installed here, but can't be imported: {error}.", "Install what it lacks.")
CAPTURE_FAILED = error(
    "{program} doesn't run on tensors without data: {error}.",
    "Where it asks for a value (.item(), a mask's contents, sizes of data), give it a fixed one.",
)
RECURRENCE_UNKNOWN = error(
    "The program has recurrent layers, which cuDNN runs in kernels of its own: their work isn't known.",
    "Record a trace of it, or capture the rest.",
)
RECORDING_WITHOUT_VALUES = error(
    "{path} holds no GPU activity, and of its ops only shapes: strides and paddings of convolutions are missing.",
    "Record it with PyTorch 2.1 or later, or on a GPU.",
)
MEASURED_BY_CAPTURE = error("{path} was captured itself: nothing in it is measured.", "Give a recording.")
MEASURED_BY_UNKNOWN_GPU = error(
    "{path} doesn't tell which GPU it was recorded on.", "Record it with a PyTorch that does, from 1.12 on."
)
MEASURED_WITHOUT_SHAPES = error(
    "The ops of {path} have no shapes, so they can't be matched to the program's.", "Record it with record_shapes=True."
)
CONFIG_ATTENTION = error(
    "The config computes attention by {attention:list}, which can't be captured.",
    "Give {--attention} eager, sdpa or flash in its place.",
)
CONFIG_QUANTIZATION = error(
    "The config's weights are quantized by a method that can't be captured: {method}.",
    "Take quantization_config out of it to predict the model in {--dtype}.",
)
CONFIG_QUANTIZED_EXPERTS = error(
    "The config's weights are quantized ({method}), and its experts' products can't be captured so.",
    "Take quantization_config out of it to predict the model in {--dtype}.",
)
CONFIG_QUANTIZED_TRAINING = error(
    "The config's weights are quantized ({method}): such a model isn't trained.",
    "Leave {--train} out, or take quantization_config out of the config.",
)
ATTENTION_UNKNOWN = error("{--attention} {attention!r} is unknown.", "Known are {known:list}.")
ATTENTION_NOT_FUSED = error(
    "transformers computes this model's attention by plain products alone.", "Leave {--attention} out, or give eager."
)
ATTENTION_NOT_FLASH = error(
    "FlashAttention takes fp16 or bf16, heads of equal widths up to {width}, and no mask: this program's attention "
    "differs.",
    "Give {--attention} sdpa or eager, or {--dtype} bf16.",
)
ATTENTION_NOT_CALLED = error(
    "The program doesn't call scaled_dot_product_attention, so {--attention} changes nothing.",
    "Leave it out, and change the program.",
)
CAPTURE_EMPTY = error("{program} launches no kernels.", "Return what a step computes.")
OPTIMIZER_UNKNOWN = error("{--optimizer} {optimizer!r} is unknown.", "Known are {known:list}.")
OPTIMIZER_WITHOUT_TRAINING = error("{--optimizer} goes with {--train}.", "Give both, or none.")
AUTOCAST_UNKNOWN = error("{--autocast} {autocast!r} is unknown.", "Known are bf16 and fp16.")
DTYPE_UNKNOWN = error("{--dtype} {dtype!r} is unknown.", "Known are {known:list}.")
PROGRAM_MALFORMED = error(
    "{program!r} names no program.",
    "Give FILE.py:FUNCTION, a function that returns a model and its inputs, or a model's config.json.",
)
PROGRAM_UNREADABLE = error("{path} can't be read as a program: {error}.", "Check the file.")
FUNCTION_MISSING = error("{path} has no function {function}.", "It has {functions:list}.")
INPUTS_MISSING = error(
    "{function} returned {found}, not a model and its inputs.",
    "Return such as (model, tokens) or (model, tokens, mask).",
)
CONFIG_MODEL_UNKNOWN = error(
    "transformers can't build a model from {path}: {error}.", "Check its model_type and the version of transformers."
)
LONGEST_OF_CONFIG = error(
    "{--longest} needs a config and a batch that is a number.", "Give a config.json, and {--batch} 1 or another number."
)
SEQUENCE_FITS_NOWHERE = error(
    "Not even the shortest sequence fits into {gpu}: its tensors take {least_bytes} at once.",
    "Give a smaller {--batch}, or a GPU with more memory.",
)
BATCH_MALFORMED = error("{--batch} {batch!r} is no batch.", "Give a number of samples, or max.")
BATCH_OF_FUNCTION = error(
    "The function chooses its batch itself.", "Give it an argument batch, or leave {--batch} out."
)
OPTIONS_OF_PROGRAMS = error(
    "{--train}, {--optimizer}, {--autocast}, {--tf32}, {--compile}, {--cuda-graph}, {--seq}, {--dtype}, "
    "{--attention}, {--bottom-mlp}, {--top-mlp} and {--measured} are for programs that are captured, not for traces.",
    "Leave them out, or give FILE.py:FUNCTION or a model's config.json.",
)
TABLES_OF_PROGRAMS = error(
    "Here {--table} is for programs that are captured, not for traces.", "Leave it out, or give a DLRM's configuration."
)
BATCH_FITS_NOWHERE = error(
    "One sample needs {least_bytes} of memory, more than a {gpu} has.",
    "Give fewer tokens with {--seq}, or leave that GPU out.",
)
CAPTURE_TARGET_NEEDED = error("No GPU is given.", "Give one or more: {--gpu} h100-sxm.")

name_templates(globals())
