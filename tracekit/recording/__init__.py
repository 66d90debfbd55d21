"""Record a trace: PyTorch's profiler with the options that a prediction needs, and facts that it doesn't record.

Needs PyTorch and none of tracekit's other requirements, so that it runs where the training runs.
"""

from tracekit.errors import TracekitError

try:
    import torch  # noqa: F401
except ImportError as error:
    raise TracekitError("Recording needs PyTorch, which isn't installed here.", "pip install torch") from error

from tracekit.recording.recorder import Recording, RecordingError

__all__ = ["Recording", "RecordingError"]
