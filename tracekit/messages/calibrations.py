"""Calibrations: measurements on the target GPU that sharpen its predictions."""

from tracekit.messages.model import Severity, Template

CALIBRATION_GPU_UNKNOWN = Template(
    "calibration-gpu-unknown",
    Severity.ERROR,
    "The trace doesn't say which GPU it was recorded on.",
    "Name it with {--gpu}.",
)
CALIBRATION_DEVICE_UNKNOWN = Template(
    "calibration-device-unknown",
    Severity.ERROR,
    "{reason}",
    "Name the GPU with {--gpu}, or describe it in a .toml file.",
)
CALIBRATION_UNHELPFUL = Template(
    "calibration-unhelpful",
    Severity.ERROR,
    "These measurements sharpen nothing: predicted from each other, their kernels are farther off than before.",
    "Measure more kernels, on a GPU that is idle otherwise.",
)
CALIBRATION_WITHOUT_KERNELS = Template("calibration-without-kernels", Severity.ERROR, "{path}: {reason}.")
CALIBRATION_NOT_FOUND = Template(
    "calibration-not-found", Severity.ERROR, "{gpu} isn't calibrated.", "`tracekit calibrate --list` shows what is."
)
CALIBRATION_NOT_REMOVED = Template("calibration-not-removed", Severity.ERROR, "{path} can't be removed: {reason}.")
CALIBRATION_DAMAGED = Template(
    "calibration-damaged",
    Severity.ERROR,
    "{path} is damaged: {reason}.",
    "Remove it with `tracekit calibrate --remove {gpu}`, or leave all out: {--no-calibration}.",
)
CALIBRATION_MISPLACED = Template(
    "calibration-misplaced", Severity.ERROR, "It holds {kernels:count kernel} measured on {gpu!r}."
)
BENCH_RESULT_INVALID = Template(
    "bench-result-invalid",
    Severity.ERROR,
    "{path}: not a result of the bench script: {reason}.",
    "`tracekit calibrate --bench` gives the script that makes one.",
)
BENCH_RESULT_TOO_LARGE = Template(
    "bench-result-too-large",
    Severity.ERROR,
    "{path} is larger than {limit_bytes}, which no result of the bench script is.",
    "`tracekit calibrate --bench` gives the script that makes one.",
)
BENCH_RESULT_UNREADABLE = Template(
    "bench-result-unreadable",
    Severity.ERROR,
    "{path} can't be read: {reason}.",
    "`tracekit calibrate --bench` gives the script that makes one.",
)
