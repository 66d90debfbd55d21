"""Calibrations: measurements on the target GPU that sharpen its predictions."""

from tracekit.messages.model import error, name_templates

CALIBRATION_GPU_UNKNOWN = error("The trace doesn't say which GPU it was recorded on.", "Name it with {--gpu}.")
CALIBRATION_DEVICE_UNKNOWN = error("{reason}", "Name the GPU with {--gpu}, or describe it in a .toml file.")
CALIBRATION_UNHELPFUL = error(
    "These measurements sharpen nothing: predicted from each other, their kernels are farther off than before.",
    "Measure more kernels, on a GPU that is idle otherwise.",
)
CALIBRATION_WITHOUT_KERNELS = error("{path}: {reason}.")
CALIBRATION_NOT_FOUND = error("{gpu} isn't calibrated.", "`tracekit calibrate --list` shows what is.")
CALIBRATION_NOT_REMOVED = error("{path} can't be removed: {reason}.")
CALIBRATION_DAMAGED = error(
    "{path} is damaged: {reason}.",
    "Remove it with `tracekit calibrate --remove {gpu}`, or leave all out: {--no-calibration}.",
)
CALIBRATION_MISPLACED = error("It holds {kernels:count kernel} measured on {gpu!r}.")
BENCH_RESULT_INVALID = error(
    "{path}: not a result of the bench script: {reason}.",
    "`tracekit calibrate --bench` gives the script that makes one.",
)
BENCH_RESULT_TOO_LARGE = error(
    "{path} is larger than {limit_bytes}, which no result of the bench script is.",
    "`tracekit calibrate --bench` gives the script that makes one.",
)
BENCH_RESULT_UNREADABLE = error(
    "{path} can't be read: {reason}.", "`tracekit calibrate --bench` gives the script that makes one."
)

name_templates(globals())
