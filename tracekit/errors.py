"""What can go wrong, as a tree.

TracekitError                   the command line ends with exit code 1
├── TraceError                  about the trace that was given
│   ├── TraceNotFoundError      no such file, or a directory without traces
│   ├── NotATraceError          readable, but not a PyTorch profiler trace
│   ├── DamagedTraceError       truncated, corrupt gzip, invalid JSON
│   ├── TraceTooLargeError      its tables need more memory than they may take
│   └── NoGpuActivityError      a trace without anything that ran on a GPU
├── CalibrationError            a calibration can't be read or used
├── ClusterError                a cluster is unknown or its name wrong (tracekit.comm.errors)
├── LayoutError                 a layout that a job can't be carried to (tracekit.prediction.layout)
├── StepError                   the steps asked for are not in the trace
├── WhatIfError                 a what-if edit is unknown, misses something, or finds nothing to change
├── OutputError                 the output exists already, or can't be written
├── RecordingError              nothing was recorded, or it can't be written (tracekit.recording)
└── WebError                    what the web server answers with another status than 200 (tracekit.web.errors)

Every message says what, where, and what to try. ``predictors.PredictorError`` (unknown GPU, ...) stands beside
this tree; the command line treats both alike.
"""


class TracekitError(Exception):
    """Base of every expected failure.

    Args:
        message: What happened and where, one sentence.
        hint: What to try.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".rstrip())
        self.message = message
        self.hint = hint


def install_extra(name: str) -> str:
    """The hint that tells how to install what an optional feature needs: PyPI's tracekit is another program."""
    return f"pip install '.[{name}]' in tracekit's checkout."


class TraceError(TracekitError):
    """Something is wrong with the trace that was given."""


class TraceNotFoundError(TraceError, FileNotFoundError):
    """There is no such file, or a directory holds no traces."""


class NotATraceError(TraceError):
    """The file can be read, but is not a PyTorch profiler trace."""


class DamagedTraceError(TraceError):
    """The file is truncated, its compression is corrupt, or it is no valid JSON."""


class TraceTooLargeError(TraceError):
    """The trace's tables need more memory than they may take."""


class NoGpuActivityError(TraceError):
    """Nothing in the trace ran on a GPU."""


class CalibrationError(TracekitError):
    """A calibration can't be read or used."""


class StepError(TracekitError):
    """The steps asked for are not in the trace."""


class OutputError(TracekitError):
    """The output exists already, or can't be written."""


class WhatIfError(TracekitError):
    """A what-if edit is unknown, misses something, or finds nothing to change."""
