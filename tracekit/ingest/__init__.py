"""Trace files to a :class:`~tracekit.trace.Trace`."""

import io
from pathlib import Path

from tracekit.ingest.decode import decode
from tracekit.ingest.source import read
from tracekit.trace import Trace

__all__ = ["load", "load_bytes"]


def load(path: str | Path) -> Trace:
    """Read one rank's PyTorch profiler trace.

    Args:
        path: A ``.json`` or ``.json.gz`` file as ``torch.profiler`` writes it.

    Raises:
        TraceError: The file is missing, damaged, no profiler trace, or holds no GPU activity.
    """
    return load_bytes(read(Path(path)), str(path))


def load_bytes(data: bytes, source: str) -> Trace:
    """Read a trace that is already in memory, uncompressed.

    Args:
        data: The JSON text.
        source: What to call it in messages.

    Raises:
        TraceError: As for :func:`load`.
    """
    return Trace((decode(io.BytesIO(data), source),))
