"""Output files that are refused."""

from tracekit.messages.model import error, name_templates, note

OUTPUT_NOT_WRITTEN = error("{path} can't be written: {reason}.")
OUTPUT_NEEDS_FILE = error(
    "This command writes to a file only.",
    "Name one with {--output}; `report` and `predict` print every format with {--output} -.",
)
OUTPUT_NOT_A_FILE = error("{path} is not a file and would be replaced by one.", "Choose another path with {--output}.")
OUTPUT_EXISTS = error("{path} exists already.", "Overwrite it with {--force}.")
OUTPUT_NO_DIRECTORY = error("{path}: there is no directory {directory}.")
OUTPUT_DIRECTORY_READ_ONLY = error(
    "{path}: the directory {directory} can't be written to.", "Choose another path with {--output}."
)
OUTPUT_IS_INPUT = error("{path} is an input and would be overwritten.", "Choose another path with {--output}.")
TRACE_OF_ONE_TARGET_ONLY = error(
    "A predicted trace is of one target, and {targets} are asked for.", "Name one GPU with {--gpu}."
)
TRACE_OF_ONE_RANK_ONLY = error(
    "A predicted trace is of one rank in the layout of the recorded one.",
    "Choose a rank with {--ranks}, and leave the layout as it is.",
)
OUTPUT_NOT_A_FOLDER = error("{path} is not a folder.", "Name a folder, or an archive that ends in .zip.")
DIRECTORY_NOT_MADE = error("{path} can't be made: {reason}.")
PRICES_LEFT_OUT = note(
    "So that files can be shared, no prices or dollars are in {paths:list}.", "{--with-details} keeps them."
)
CHAKRA_NEEDS_PACKAGE = error("Chakra's execution traces need another package.", "`pip install 'tracekit-gpu[formats]'`")
CHAKRA_OF_ONE_TARGET = error(
    "Execution traces are of the measured step or of one target, and {targets} are asked for.",
    "Name one GPU with {--gpu}, or none.",
)

name_templates(globals())
