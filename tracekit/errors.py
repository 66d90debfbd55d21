"""The tree of expected errors.

TracekitError                   the command line ends with exit code 1
├── TraceError                  about the given trace
│   ├── TraceNotFoundError      no such file, or a directory without traces
│   ├── NotATraceError          readable, but not a PyTorch profiler trace
│   ├── DamagedTraceError       truncated, corrupt gzip, invalid JSON
│   ├── TraceTooLargeError      its tables exceed the memory limit
│   └── NoGpuActivityError      a trace without GPU activity
├── CalibrationError            a calibration is unreadable or unusable
├── CaptureError                a program to capture is missing, fails, or launches nothing
├── ClusterError                a cluster is unknown or its name wrong (tracekit.comm.errors)
├── EngineError                 the engine that works on ranks doesn't answer, or is lost
├── GpuError                    a GPU is unknown, its name ambiguous, or its file wrong
├── IndexFileError              a file of look-ups is unreadable or empty
├── LayoutError                 a layout is impossible for a job (tracekit.parallelism.layout)
├── ModelConfigError            a model's config.json is unreadable, or of layers that aren't known
├── RequestError                an option has an impossible value
├── RuleError                   there is no such inference rule
├── StepError                   the requested steps are not in the trace
├── WhatIfError                 a what-if edit is unknown, incomplete, or finds nothing to change
├── OutputError                 the output exists already, or cannot be written
├── RecordingError              nothing was recorded, or it cannot be written (tracekit.recording)
└── WebError                    the web server answers with a status other than 200 (tracekit.web.errors)

Every message says what happened, where, and what to try. ``predictors.PredictorError`` stands beside this tree; the
command line treats both alike, and Python's functions raise it as a ``GpuError``.
"""

from tracekit.messages import Message, OptionNames, name_option
from tracekit.messages.requests import GPU_REFUSED


class TracekitError(Exception):
    """Base of every expected error.

    Args:
        message: What happened, where, and what to try.

    Attributes:
        code: Stable name for programs and tests: ``"output-exists"``.
        catalogue_message: The message.
        message: What happened and where.
        hint: What to try.
    """

    def __init__(self, message: Message) -> None:
        super().__init__(message)
        self.catalogue_message = message
        self.code = message.code
        self.name_options(name_option)

    def name_options(self, name: OptionNames) -> None:
        """Name options as a front end does, from now on: as the command line at first."""
        self._name_option = name
        self.message = self.catalogue_message.render_text(name)
        self.hint = self.catalogue_message.render_hint(name)

    def __str__(self) -> str:
        return self.catalogue_message.render(self._name_option)


class TraceError(TracekitError):
    """Something is wrong with the given trace."""


class TraceNotFoundError(TraceError, FileNotFoundError):
    """There is no such file, or a directory holds no traces."""


class NotATraceError(TraceError):
    """The file is readable, but is not a PyTorch profiler trace."""


class DamagedTraceError(TraceError):
    """The file is truncated, its compression is corrupt, or it is invalid JSON."""


class TraceTooLargeError(TraceError):
    """The trace's tables exceed the memory limit."""


class NoGpuActivityError(TraceError):
    """Nothing in the trace ran on a GPU."""


class CalibrationError(TracekitError):
    """A calibration is unreadable or unusable."""


class CaptureError(TracekitError):
    """A program to capture is missing, fails, or launches no kernels, or what captures it isn't installed."""


class EngineError(TracekitError):
    """The scheduler of the engine that works on a job's ranks doesn't answer, or a rank ends its workers."""


class GpuError(TracekitError, LookupError):
    """A GPU is unknown, its name ambiguous, or its file wrong.

    Args:
        code: Stable name of what is wrong.
        message: What is wrong.
        hint: What to try.
    """

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(GPU_REFUSED(reason=message, hint=hint))
        self.code = code


class IndexFileError(TracekitError):
    """A file of indices into embedding tables is unreadable, or has none."""


class ModelConfigError(TracekitError):
    """A model's config.json is unreadable, or describes layers that aren't known."""


class RequestError(TracekitError):
    """An option has an impossible value."""


class RuleError(TracekitError):
    """There is no such inference rule."""


class StepError(TracekitError):
    """The requested steps are not in the trace."""


class OutputError(TracekitError):
    """The output exists already, or cannot be written."""


class WhatIfError(TracekitError):
    """A what-if edit is unknown, incomplete, or finds nothing to change."""
