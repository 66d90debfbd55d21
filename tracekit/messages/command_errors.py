"""Commands that can't run."""

from tracekit.messages.model import error, name_templates

DEVIATION_UNKNOWN = error(
    "{--fail-above} can't be told of {sides}: see above how they differ.",
    "Give two runs of the same program; of a prediction, the GPU, ranks and batch that it is for.",
)
MEMORY_EXHAUSTED = error("There is not enough memory.", "Allow more (ulimit -v, the container's limit), or read less.")
MEMORY_LIMIT_LOW = error(
    "There is not enough memory: {limit_bytes} may be used, and the libraries start with {least_bytes} or more.",
    "Allow more (ulimit -v).",
)
OUTPUT_DISK_FULL = error("There is no space left where the output goes.", "Make room, and run it again.")
SERVE_NEEDS_LINUX = error(
    "The web page is served on Linux only; every other command works here.", "Run it in Docker or, on Windows, in WSL."
)
FILE_FAILED = error("{path} can't be read or written: {reason}.")
OUTPUT_FORMAT_UNKNOWN = error("{path}: can't tell the format from {suffix!r}.", "Known: {known:list}.")
OUTPUT_SEVERAL = error(
    "This command writes to one place, and several are named: {paths:list}.", "Give {--output} once."
)
OUTPUT_OVERLAP = error(
    "{path} is named as an output, and is where the kernels' table of another one goes.",
    "Choose another path with {--output}.",
)
OUTPUT_NOT_FOR_TERMINAL = error("{format} is no text for a terminal.", "Write a file: -o report.{format}.")
FILE_TO_VIEW_MISSING = error("{path}: no such file.")
FILE_TO_VIEW_UNKNOWN = error("{path} is neither a report nor a timeline.", "Give an .html, .json or .json.gz.")
PORT_UNUSABLE = error("Port {port} can't be used: {reason}.", "Choose another with {--port}.")
VIEWER_MISSING = error(
    "Showing a timeline needs Perfetto's page.",
    "Install it with pip install 'tracekit-gpu[{extra}]', or open the file at https://ui.perfetto.dev: "
    "it stays in your browser.",
)
NOT_A_SAVED_PREDICTION = error("{path} is not what `tracekit predict --json` writes: {reason}.", "Predict anew.")
SAVED_PREDICTION_OF_SEVERAL = error("{path} predicts several GPUs.", "Choose with {--gpu}: {targets:list}.")
SAVED_PREDICTION_OF_SEVERAL_LIKE = error("{path} predicts several of {gpu}.", "Choose with {--gpu}: {targets:list}.")
SAVED_PREDICTION_WITHOUT_GPU = error("{path} has no prediction for {gpu}.", "Choose with {--gpu}: {targets:list}.")
NOT_COMPARABLE = error("{value} is no trace, report or predictions.", "Load it: tk.load(path).")
PREDICTIONS_OF_SEVERAL = error("These predictions are for several GPUs.", "Choose with gpu=: {targets:list}.")
GPU_NOT_PREDICTED = error("{gpu!r} isn't among these predictions.", "Choose with gpu=: {targets:list}.")
FIGURE_UNKNOWN = error("The report has no figure {name!r}.", "Known: {known:list}.")

name_templates(globals())
