"""Files with indices that look rows of embedding tables up."""

from tracekit.messages.model import error, name_templates

INDICES_UNREADABLE = error(
    "{path} can't be read: {reason}.",
    "Give indices as .npy, .npz or .pt, counts as .csv with the columns draws and rows, or a locality_stats.txt.",
)
INDICES_EMPTY = error(
    "{path} has no look-ups: {found}.",
    "Give whole numbers, 0 or more: an array for each table, or indices, offsets and lengths.",
)
INDICES_NEED_TORCH = error(
    "{path} holds tensors, which PyTorch reads; it isn't installed.", "Install it: pip install torch."
)
INDICES_TOO_LARGE = error("{path} holds more than {limit_bytes}.", "Give the indices of fewer batches.")
INDICES_GIVEN_TWICE = error(
    "Both an exponent and a file tell how skewed look-ups are.", "Leave out {--zipf} or {--indices}."
)

name_templates(globals())
