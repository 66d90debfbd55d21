"""A model's ``config.json`` beside a trace."""

from tracekit.messages.model import error, name_templates, note, warning

CONFIG_UNREADABLE = error("{path} can't be read: {reason}.", "Give the config.json of a model.")
CONFIG_NOT_JSON = error(
    "{path} is no model configuration: it isn't a JSON object.", "Give the config.json of the model's checkpoint."
)
CONFIG_KEY_MISSING = error("{path} has no {key}.", "Give the config.json of the model's checkpoint.")
CONFIG_SIZE = error("{path} has an impossible {key}: {value!s:.40}.", "Give the config.json of the model's checkpoint.")
CONFIG_LAYERS = error(
    "{path} describes {architecture}, which has layers of {layers}. Known are layers of attention, "
    "latent attention, the gated delta rule and Mamba-2, with an MLP or experts.",
    "Record the model once without CUDA graphs and with shapes, or the capture of its graphs.",
)
CONFIG_NOT_UNIQUE = error(
    "Several model configurations were given: {paths:list}.", "Give the one of the model that the trace ran."
)
CONFIG_TOO_LARGE = error("{path} holds more than {limit_bytes}.", "Give the config.json of a model.")
CONFIG_SKIPPED = warning("The model configuration was left out. {error}")
CONFIG_WITHOUT_FIT = warning(
    "{path} fits none of the trace's batches: {difference}.", "Give the config.json of the model that the trace ran."
)
FIT_WITHOUT_BATCHES = note("no serving engine marks any")
FIT_LAYERS_DIFFER = note("most of them run attention in {seen:count layer}, and the model has {layers}")
FIT_GEMMS_DIFFER = note(
    "they run attention in as many layers as the model has, {layers}, but from one layer's to the next's most have "
    "{seen:count GEMM}, and the model {expected:list} (with {ranks:count rank} sharing a layer)"
)
FIT_ENDS_DIFFER = note(
    "they have as many layers as the model, {layers}, and as many GEMMs in most, {seen}, but others before the first "
    "or behind the last attention"
)

name_templates(globals())
