"""Commands that can't run."""

from tracekit.messages.model import Severity, Template

DEVIATION_UNKNOWN = Template(
    "deviation-unknown",
    Severity.ERROR,
    "{--fail-above} can't be told of {sides}: see above how they differ.",
    "Give two runs of the same program; of a prediction, the GPU, ranks and batch that it is for.",
)
MEMORY_EXHAUSTED = Template(
    "memory-exhausted",
    Severity.ERROR,
    "There is not enough memory.",
    "Allow more (ulimit -v, the container's limit), or read less.",
)
MEMORY_LIMIT_LOW = Template(
    "memory-limit-low",
    Severity.ERROR,
    "There is not enough memory: {limit_bytes} may be used, and the libraries start with {least_bytes} or more.",
    "Allow more (ulimit -v).",
)
OUTPUT_DISK_FULL = Template(
    "output-disk-full",
    Severity.ERROR,
    "There is no space left where the output goes.",
    "Make room, and run it again.",
)
SERVE_NEEDS_LINUX = Template(
    "serve-needs-linux",
    Severity.ERROR,
    "The web page is served on Linux only; every other command works here.",
    "Run it in Docker or, on Windows, in WSL.",
)
FILE_FAILED = Template("file-failed", Severity.ERROR, "{path} can't be read or written: {reason}.")
OUTPUT_FORMAT_UNKNOWN = Template(
    "output-format-unknown",
    Severity.ERROR,
    "{path}: can't tell the format from {suffix!r}.",
    "Known: {known:list}.",
)
OUTPUT_SEVERAL = Template(
    "output-several",
    Severity.ERROR,
    "This command writes to one place, and several are named: {paths:list}.",
    "Give {--output} once.",
)
OUTPUT_OVERLAP = Template(
    "output-overlap",
    Severity.ERROR,
    "{path} is named as an output, and is where the kernels' table of another one goes.",
    "Choose another path with {--output}.",
)
OUTPUT_NOT_FOR_TERMINAL = Template(
    "output-not-for-terminal",
    Severity.ERROR,
    "{format} is no text for a terminal.",
    "Write a file: -o report.{format}.",
)
FILE_TO_VIEW_MISSING = Template("file-to-view-missing", Severity.ERROR, "{path}: no such file.")
FILE_TO_VIEW_UNKNOWN = Template(
    "file-to-view-unknown",
    Severity.ERROR,
    "{path} is neither a report nor a timeline.",
    "Give an .html, .json or .json.gz.",
)
PORT_UNUSABLE = Template(
    "port-unusable",
    Severity.ERROR,
    "Port {port} can't be used: {reason}.",
    "Choose another with {--port}.",
)
VIEWER_MISSING = Template(
    "viewer-missing",
    Severity.ERROR,
    "Showing a timeline needs Perfetto's page.",
    "Install it with pip install 'tracekit-gpu[{extra}]', or open the file at https://ui.perfetto.dev: "
    "it stays in your browser.",
)
NOT_A_SAVED_PREDICTION = Template(
    "not-a-saved-prediction",
    Severity.ERROR,
    "{path} is not what `tracekit predict --json` writes: {reason}.",
    "Predict anew.",
)
SAVED_PREDICTION_OF_SEVERAL = Template(
    "saved-prediction-of-several",
    Severity.ERROR,
    "{path} predicts several GPUs.",
    "Choose with {--gpu}: {targets:list}.",
)
SAVED_PREDICTION_OF_SEVERAL_LIKE = Template(
    "saved-prediction-of-several-like",
    Severity.ERROR,
    "{path} predicts several of {gpu}.",
    "Choose with {--gpu}: {targets:list}.",
)
SAVED_PREDICTION_WITHOUT_GPU = Template(
    "saved-prediction-without-gpu",
    Severity.ERROR,
    "{path} has no prediction for {gpu}.",
    "Choose with {--gpu}: {targets:list}.",
)
NOT_COMPARABLE = Template(
    "not-comparable",
    Severity.ERROR,
    "{value} is no trace, report or predictions.",
    "Load it: tk.load(path).",
)
PREDICTIONS_OF_SEVERAL = Template(
    "predictions-of-several",
    Severity.ERROR,
    "These predictions are for several GPUs.",
    "Choose with gpu=: {targets:list}.",
)
GPU_NOT_PREDICTED = Template(
    "gpu-not-predicted",
    Severity.ERROR,
    "{gpu!r} isn't among these predictions.",
    "Choose with gpu=: {targets:list}.",
)
FIGURE_UNKNOWN = Template(
    "figure-unknown",
    Severity.ERROR,
    "The report has no figure {name!r}.",
    "Known: {known:list}.",
)
