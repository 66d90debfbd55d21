"""The command line and the web service."""

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


SAMPLE_UNKNOWN = error("There is no such sample.", "There are: {known:list}.")
COMPARISON_NEEDS_TWO = error("Choose two reports to compare.", "Tick two of them in the list of your reports.")
REPORT_NOT_COMPARABLE = error(
    "{name} has no report to compare yet.",
    "Only reports that are done, and not of ranks one by one, can be compared; ask anew for one of an older tracekit.",
)
TARGET_NOT_IN_REPORT = error("{name} wasn't predicted on {target}.", "It was on: {targets:list}.")
HOST_NAME_FOREIGN = error("This server is asked under a name that isn't its own.", "Use http://127.0.0.1.")
ORIGIN_FOREIGN = error("The request comes from another site.")
RATE_EXCEEDED = error("More than {most} uploads and jobs in a minute.", "Wait a minute.")
TOKEN_WRONG = error("The token is missing or wrong.", "Send it as 'Authorization: Bearer TOKEN'.")
TOKENS_WRONG = error(
    "{most} wrong tokens came from your address in a minute.",
    "Wait a minute; then none is refused for the wrong ones before.",
)
BODY_TOO_LARGE = error("A request may hold {max_length} bytes, and must say how many it does.")
JOB_IN_WORK = error("This job is being worked on.", "Wait until it is done.")
REPORT_MISSING = error("There is no such report.", "It may have expired, or its owner deleted it.")
REPORT_PENDING = error("There is no such report.", "It is there once the job is done.")
REPORT_DELETED = error("There is no such report.", "It was deleted just now.")
QUEUE_FULL = error("{count} {whose} wait already, the most that this server allows.", "Try later.")
JOBS_TOO_MANY = error(
    "{most} jobs are kept for you already, the most that this server allows.",
    "Delete some; whoever runs the server sets the limit ({--max-jobs}).",
)
UPLOADS_TOO_MANY = error(
    "{most} of your uploads wait for a job already, the most that this server allows.",
    "Begin a job with them, or delete some.",
)
QUOTA_USED_UP = error(
    "Your uploads and reports would take more than this server keeps for you: {max_bytes}.",
    "Delete reports; whoever runs the server sets the limit ({--max-stored}).",
)
UPLOAD_TYPE_WRONG = error("The data must be sent as {media_type}.")
UPLOAD_PROTOCOL_UNKNOWN = error("Tus-Resumable must be {version}.")
UPLOAD_NAME_UNREADABLE = error("Upload-Metadata: filename is no text in base64.")
UPLOAD_MISSING = error("There is no such upload.", "It may have expired; upload the file again.")
UPLOAD_INCOMPLETE = error("{name} has not arrived wholly.", "Resume its upload first.")
UPLOAD_TAKEN = error("An upload belongs to another job already.", "Upload the file again.")
UPLOAD_OFFSET_WRONG = error("{received} bytes have arrived.", "Ask for the offset (HEAD) and go on from there.")
UPLOAD_TOO_LARGE = error(
    "{name} is larger than this server takes: {max_bytes}.",
    "Compress it, or record fewer steps; whoever runs the server sets the limit ({--max-upload}).",
)
UPLOAD_LONGER_THAN_ANNOUNCED = error("More arrives than the {length} bytes that were announced.")
UPLOAD_CHECKSUM_UNKNOWN = error(
    "Upload-Checksum is none that this server can verify.", "Send one of {known:list} and its value in base64."
)
UPLOAD_CHECKSUM_WRONG = error("The data was damaged on its way: its checksum differs.", "Send it again.")
UPLOAD_METADATA_WRONG = error(
    "Upload-Metadata isn't pairs of different keys and values in base64, {max_length} characters at most."
)
UPLOAD_LOCKED = error("Another request writes to this upload.", "Wait until it ends, then resume.")
DISK_WITHOUT_ROOM = error("The server's disk has no room for this file.", "Try later, or tell whoever runs it.")
DISK_FULL = error("The server's disk is full.", "Try again later, or tell whoever runs it.")
SERVER_BUSY = error("The server has as many connections and files open as it may.", "Try again in some seconds.")
PLAN_TOO_LARGE = error(
    "The page plans up to {most_tables} tables on {most_ranks} GPUs, and these are {tables} on {ranks}.",
    "`tracekit shard` on the command line takes more.",
)
TOO_MANY_SERVED_GPUS = error(
    "A page compares few GPUs and loads at once.",
    "Name at most {most} GPUs and clusters, not groups of them, and {most} loads.",
)
OPTION_UNKNOWN = error("There is no option {option!r} here.", "Known: {known:list}.")
SERVED_LOAD_TOO_LARGE = error(
    "The server answers loads of at most {most:,} output tokens, and this one has {tokens:,}.",
    "Ask for shorter answers or fewer requests, or run `tracekit serving` yourself.",
)
PLANNER_BUSY = error("Others' plans are being made.", "Try again in some seconds.")
DATABASE_BUSY = error(
    "The server's database is locked or doesn't respond.", "Try again in some seconds, or tell whoever runs the server."
)
DATABASE_UNUSABLE = error(
    "{name} can't be used: {reason}.", "Put a backup in its place, or name another directory with {--data}."
)
DATABASE_DAMAGED = error("{name} is damaged.", "Put a backup in its place, or name another directory with {--data}.")
DATABASE_FOREIGN = error(
    "{name} has tables that no version of this server made.",
    "Name another database with {--database}, or another directory with {--data}.",
)
DATABASE_NEWER = error(
    "{name} was made by a newer tracekit.", "Update tracekit, or name another directory with {--data}."
)
DATABASE_URL_UNUSABLE = error(
    "The database's address isn't one of PostgreSQL.", "Write it as postgresql://USER@HOST/NAME ({--database})."
)
FILES_UNREACHABLE = error(
    "The server can't reach the place where it keeps files.", "Try again later, or tell whoever runs it."
)
FILES_UNUSABLE = error("The server can't use its files: {reason}.", "Try later.")
FILES_TOO_MANY = error(
    "{files} files are more than the {max_files} that this server takes.",
    "Whoever runs the server sets the limit ({--max-files}).",
)
FILES_UNPACK_TOO_LARGE = error(
    "{name} unpacks to more than this server takes: {max_bytes}.",
    "Whoever runs the server sets the limit ({--max-unpacked}).",
)
WORKER_OUT_OF_MEMORY = error(
    "The job needs more memory than a worker may take: {max_bytes}.",
    "Send fewer steps or one rank; whoever runs the server sets the limit (--memory).",
)
WORKER_TABLES_TOO_LARGE = error(
    "{reason}", "Send fewer steps or one rank; whoever runs the server sets the limit (--memory)."
)
ENGINE_FAILED = error(
    "{reason}",
    "Ask again later, or tell whoever runs the server: jobs of many ranks are worked on elsewhere ({--engine}).",
)
ENGINE_WITHOUT_FILES = error(
    "{lacking} of {workers} workers of the engine can't run tracekit on the server's files.",
    "Whoever runs the server gives all of them this version of tracekit, and {--data} under the same path.",
)
RANKS_WITHOUT_OPTION = error(
    "The {ranks} ranks of this job are worked on one by one, without “{option}”.",
    "Leave it out, or measure one rank with {--ranks}.",
)
JOB_TOO_SLOW = error(
    "The job took longer than it may: {limit_s} s.",
    "Send fewer steps or one rank; whoever runs the server sets the limit (--time-limit).",
)
GPU_UNKNOWN_TO_SERVER = error("{reason}", "The page's search and /api/v1/gpus have all.")
CLUSTER_UNKNOWN_TO_SERVER = error("{reason}", "The page's field and /api/v1/clusters list those with names.")
PRICE_NOT_A_NUMBER = error("{price!r} is no price.", "Write dollars with a point, such as 2.49.")
PRICE_WITHOUT_GPU = error(
    "The trace's GPU has a price, but its name isn't known.", "Name it in {--source-gpu}, or leave the price out."
)
FIELD_INVALID = error("{field}: {reason}.")
WORKERS_DIED = error("A worker died at this job {times} times.", "It may need more memory than there is.")
SERVER_BUG = error("This is a bug in tracekit.", "Please report it; whoever runs the server has its log.")
TIMELINE_NOT_DRAWN = error(
    "There is no timeline.", 'It is drawn when asked for: on the report\'s page, or with "timeline": true.'
)
TOOL_UNKNOWN = error("There is no tool {given!r}.", "Known are {known:list}.")
TOOL_OPTION_UNKNOWN = error("{tool} takes no {given!r}.", "It takes {near:list}.")
TOOL_INPUT_MISSING = error("{tool} needs {name!r}.", "Give the path of a file, or a list of them.")
TOOL_OPTION_MALFORMED = error("{given!r} is no option.", "Write each as one word, such as --top=5.")
TIMELINE_MISSING = error("There is no timeline.", "Its viewer comes with pip install 'tracekit-gpu[{extra}]'.")
VALUES_TOO_MANY = error("{option} is too long.", "Give {most} values at most, each of up to {max_length} characters.")
SERVER_READS_NO_FILES = error(
    "{value}: the server reads no files.", "Name what it knows: /api/v1/gpus, /api/v1/clusters."
)
TOKEN_NEEDED = error(
    "{host} can be reached by others, so clients must know a token.",
    "Set TRACEKIT_TOKEN (or {--token}), such as {suggestion}",
)
TOKEN_TOO_SHORT = error("The token is shorter than {min_length} characters.")
TOKEN_NOT_ASCII = error(
    "The token has characters that a request can't send.", "Use letters, digits and signs of ASCII."
)
WORKER_MEMORY_TOO_SMALL = error("A worker needs {--memory} 2G at least.")
DATA_DIRECTORY_UNUSABLE = error("{path} can't be made: {reason}.", "Name another directory with {--data}.")
SERVER_NOT_STARTED = error("The page didn't start; the lines above say why.")
ADDRESS_UNUSABLE = error("{host}:{port} can't be listened on: {reason}.", "Choose another with {--port} or {--host}.")


name_templates(globals())
