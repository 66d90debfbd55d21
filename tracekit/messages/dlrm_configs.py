"""A DLRM that a configuration describes."""

from tracekit.messages.model import error, name_templates

DLRM_KEY_UNKNOWN = error("{path}: {key!r} is no key of {part}.", "Known are {known:list}.")
DLRM_VALUE = error("{path}: {key} can't be {value!s:.60}.", "Give {expected}.")
DLRM_TABLE = error(
    "{path}: {place}: {reason}",
    'Write such as {{"rows": 1000000, "width": 128, "pooling": 20, "alpha": 1.05, "count": 26}}.',
)
DLRM_WITHOUT_TABLES = error(
    "{path} has no embedding tables.",
    'Write such as "tables": [{{"rows": 1000000, "width": 128, "pooling": 20, "count": 26}}].',
)
DLRM_TABLES_TOO_MANY = error("{path} has {tables} embedding tables.", "Give at most {most}.")
DLRM_WIDTHS_DIFFER = error(
    "{path}: dot products need rows of one width, also at the bottom MLP's end, and there are {widths:list}.",
    'Give all tables one width and end {--bottom-mlp} with it, or choose the interaction "cat" or "dcn".',
)
DLRM_TABLE_OPTIMIZER = error(
    "{path}: {lookup} has no table_optimizer {optimizer!r}.",
    "It has {known:list}; with dense gradients {--optimizer} counts.",
)
DLRM_WITHOUT_TOKENS = error("A DLRM has no sequences of tokens.", "Leave out {--seq}.")
DLRM_LONGEST = error("A DLRM has no sequences of tokens.", "Leave out {--longest}.")
DLRM_OPTIONS = error(
    "{--table}, {--bottom-mlp} and {--top-mlp} change a DLRM's configuration, and {program} is none.",
    'Give a JSON with "model_type": "dlrm".',
)
MLP_MALFORMED = error("{widths!r} is no MLP.", "Give the widths of its layers, such as 512,256,128.")

name_templates(globals())
