"""Record a trace: PyTorch's profiler with the options that a prediction needs, and facts that it doesn't record.

Needs PyTorch and none of tracekit's other requirements, so that it runs where the training runs.
"""

from tracekit.errors import TracekitError
from tracekit.messages.recordings import PYTORCH_MISSING

try:
    import torch  # noqa: F401
except ImportError as error:
    raise TracekitError(PYTORCH_MISSING()) from error

from tracekit.recording.recorder import Recording, RecordingError

__all__ = ["Recording", "RecordingError"]
