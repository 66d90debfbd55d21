"""A model's ``config.json`` beside a trace."""

from tracekit.messages.model import Severity, Template

CONFIG_UNREADABLE = Template(
    "config-unreadable", Severity.ERROR, "{path} can't be read: {reason}.", "Give the config.json of a model."
)
CONFIG_NOT_JSON = Template(
    "config-not-json",
    Severity.ERROR,
    "{path} is no model configuration: it isn't a JSON object.",
    "Give the config.json of the model's checkpoint.",
)
CONFIG_KEY_MISSING = Template(
    "config-key-missing",
    Severity.ERROR,
    "{path} has no {key}.",
    "Give the config.json of the model's checkpoint.",
)
CONFIG_SIZE = Template(
    "config-size",
    Severity.ERROR,
    "{path} has an impossible {key}: {value!s:.40}.",
    "Give the config.json of the model's checkpoint.",
)
CONFIG_LAYERS = Template(
    "config-layers",
    Severity.ERROR,
    "{path} describes {architecture}, which has layers of {layers}. Known are layers of attention, "
    "latent attention, the gated delta rule and Mamba-2, with an MLP or experts.",
    "Record the model once without CUDA graphs and with shapes, or the capture of its graphs.",
)
CONFIG_NOT_UNIQUE = Template(
    "config-not-unique",
    Severity.ERROR,
    "Several model configurations were given: {paths:list}.",
    "Give the one of the model that the trace ran.",
)
CONFIG_TOO_LARGE = Template(
    "config-too-large", Severity.ERROR, "{path} holds more than {limit_bytes}.", "Give the config.json of a model."
)
CONFIG_SKIPPED = Template("config-skipped", Severity.WARNING, "The model configuration was left out. {error}")
CONFIG_WITHOUT_FIT = Template(
    "config-without-fit",
    Severity.WARNING,
    "{path} fits none of the trace's batches: {difference}.",
    "Give the config.json of the model that the trace ran.",
)
FIT_WITHOUT_BATCHES = Template("fit-without-batches", Severity.NOTE, "no serving engine marks any")
FIT_LAYERS_DIFFER = Template(
    "fit-layers-differ",
    Severity.NOTE,
    "most of them run attention in {seen:count layer}, and the model has {layers}",
)
FIT_GEMMS_DIFFER = Template(
    "fit-gemms-differ",
    Severity.NOTE,
    "they run attention in as many layers as the model has, {layers}, but from one layer's to the next's most have "
    "{seen:count GEMM}, and the model {expected:list} (with {ranks:count rank} sharing a layer)",
)
FIT_ENDS_DIFFER = Template(
    "fit-ends-differ",
    Severity.NOTE,
    "they have as many layers as the model, {layers}, and as many GEMMs in most, {seen}, but others before the first "
    "or behind the last attention",
)
