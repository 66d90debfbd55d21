"""Recording: PyTorch's profiler with the options that a prediction needs, and the facts that it doesn't note.

Needs PyTorch and nothing else of tracekit's requirements, so that it runs where the training runs.
"""

from tracekit.errors import TracekitError

try:
    import torch  # noqa: F401
except ImportError as error:
    raise TracekitError("Recording needs PyTorch, which isn't installed here.", "pip install torch") from error

from tracekit.recording.recorder import Recording, RecordingError

__all__ = ["Recording", "RecordingError"]
