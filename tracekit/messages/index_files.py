"""Files with indices that look rows of embedding tables up."""

from tracekit.messages.model import Severity, Template

INDICES_UNREADABLE = Template(
    "indices-unreadable",
    Severity.ERROR,
    "{path} can't be read: {reason}.",
    "Give indices as .npy, .npz or .pt, counts as .csv with the columns draws and rows, or a locality_stats.txt.",
)
INDICES_EMPTY = Template(
    "indices-empty",
    Severity.ERROR,
    "{path} has no look-ups: {found}.",
    "Give whole numbers, 0 or more: an array for each table, or indices, offsets and lengths.",
)
INDICES_NEED_TORCH = Template(
    "indices-need-torch",
    Severity.ERROR,
    "{path} holds tensors, which PyTorch reads; it isn't installed.",
    "Install it: pip install torch.",
)
INDICES_TOO_LARGE = Template(
    "indices-too-large", Severity.ERROR, "{path} holds more than {limit_bytes}.", "Give the indices of fewer batches."
)
INDICES_GIVEN_TWICE = Template(
    "indices-given-twice",
    Severity.ERROR,
    "Both an exponent and a file tell how skewed look-ups are.",
    "Leave out {--zipf} or {--indices}.",
)
