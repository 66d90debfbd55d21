"""Output files that are refused."""

from tracekit.messages.model import Severity, Template

OUTPUT_NOT_WRITTEN = Template("output-not-written", Severity.ERROR, "{path} can't be written: {reason}.")
OUTPUT_NEEDS_FILE = Template(
    "output-needs-file",
    Severity.ERROR,
    "This command writes to a file only.",
    "Name one with {--output}; `report` and `predict` print every format with {--output} -.",
)
OUTPUT_NOT_A_FILE = Template(
    "output-not-a-file",
    Severity.ERROR,
    "{path} is not a file and would be replaced by one.",
    "Choose another path with {--output}.",
)
OUTPUT_EXISTS = Template("output-exists", Severity.ERROR, "{path} exists already.", "Overwrite it with {--force}.")
OUTPUT_NO_DIRECTORY = Template("output-no-directory", Severity.ERROR, "{path}: there is no directory {directory}.")
OUTPUT_DIRECTORY_READ_ONLY = Template(
    "output-directory-read-only",
    Severity.ERROR,
    "{path}: the directory {directory} can't be written to.",
    "Choose another path with {--output}.",
)
OUTPUT_IS_INPUT = Template(
    "output-is-input",
    Severity.ERROR,
    "{path} is an input and would be overwritten.",
    "Choose another path with {--output}.",
)
TRACE_OF_ONE_TARGET_ONLY = Template(
    "trace-of-one-target-only",
    Severity.ERROR,
    "A predicted trace is of one target, and {targets} are asked for.",
    "Name one GPU with {--gpu}.",
)
TRACE_OF_ONE_RANK_ONLY = Template(
    "trace-of-one-rank-only",
    Severity.ERROR,
    "A predicted trace is of one rank in the layout of the recorded one.",
    "Choose a rank with {--ranks}, and leave the layout as it is.",
)
OUTPUT_NOT_A_FOLDER = Template(
    "output-not-a-folder",
    Severity.ERROR,
    "{path} is not a folder.",
    "Name a folder, or an archive that ends in .zip.",
)
DIRECTORY_NOT_MADE = Template("directory-not-made", Severity.ERROR, "{path} can't be made: {reason}.")
PRICES_LEFT_OUT = Template(
    "prices-left-out",
    Severity.NOTE,
    "So that files can be shared, no prices or dollars are in {paths:list}.",
    "{--with-details} keeps them.",
)
CHAKRA_NEEDS_PACKAGE = Template(
    "chakra-needs-package",
    Severity.ERROR,
    "Chakra's execution traces need another package.",
    "`pip install 'tracekit-gpu[formats]'`",
)
CHAKRA_OF_ONE_TARGET = Template(
    "chakra-of-one-target",
    Severity.ERROR,
    "Execution traces are of the measured step or of one target, and {targets} are asked for.",
    "Name one GPU with {--gpu}, or none.",
)
