"""Requests that the web server refuses."""

from tracekit.messages.model import Severity, Template

SAMPLE_UNKNOWN = Template("sample-unknown", Severity.ERROR, "There is no such sample.", "There are: {known:list}.")
COMPARISON_NEEDS_TWO = Template(
    "comparison-needs-two",
    Severity.ERROR,
    "Choose two reports to compare.",
    "Tick two of them in the list of your reports.",
)
REPORT_NOT_COMPARABLE = Template(
    "report-not-comparable",
    Severity.ERROR,
    "{name} has no report to compare yet.",
    "Only reports that are done, and not of ranks one by one, can be compared; ask anew for one of an older tracekit.",
)
TARGET_NOT_IN_REPORT = Template(
    "target-not-in-report",
    Severity.ERROR,
    "{name} wasn't predicted on {target}.",
    "It was on: {targets:list}.",
)
HOST_NAME_FOREIGN = Template(
    "host-name-foreign",
    Severity.ERROR,
    "This server is asked under a name that isn't its own.",
    "Use http://127.0.0.1.",
)
ORIGIN_FOREIGN = Template("origin-foreign", Severity.ERROR, "The request comes from another site.")
RATE_EXCEEDED = Template(
    "rate-exceeded",
    Severity.ERROR,
    "More than {most} uploads and jobs in a minute.",
    "Wait a minute.",
)
TOKEN_WRONG = Template(
    "token-wrong",
    Severity.ERROR,
    "The token is missing or wrong.",
    "Send it as 'Authorization: Bearer TOKEN'.",
)
TOKENS_WRONG = Template(
    "tokens-wrong",
    Severity.ERROR,
    "{most} wrong tokens came from your address in a minute.",
    "Wait a minute; then none is refused for the wrong ones before.",
)
BODY_TOO_LARGE = Template(
    "body-too-large",
    Severity.ERROR,
    "A request may hold {max_length} bytes, and must say how many it does.",
)
JOB_IN_WORK = Template("job-in-work", Severity.ERROR, "This job is being worked on.", "Wait until it is done.")
REPORT_MISSING = Template(
    "report-missing",
    Severity.ERROR,
    "There is no such report.",
    "It may have expired, or its owner deleted it.",
)
REPORT_PENDING = Template(
    "report-pending",
    Severity.ERROR,
    "There is no such report.",
    "It is there once the job is done.",
)
REPORT_DELETED = Template("report-deleted", Severity.ERROR, "There is no such report.", "It was deleted just now.")
QUEUE_FULL = Template(
    "queue-full",
    Severity.ERROR,
    "{count} {whose} wait already, the most that this server allows.",
    "Try later.",
)
JOBS_TOO_MANY = Template(
    "jobs-too-many",
    Severity.ERROR,
    "{most} jobs are kept for you already, the most that this server allows.",
    "Delete some; whoever runs the server sets the limit ({--max-jobs}).",
)
UPLOADS_TOO_MANY = Template(
    "uploads-too-many",
    Severity.ERROR,
    "{most} of your uploads wait for a job already, the most that this server allows.",
    "Begin a job with them, or delete some.",
)
QUOTA_USED_UP = Template(
    "quota-used-up",
    Severity.ERROR,
    "Your uploads and reports would take more than this server keeps for you: {max_bytes}.",
    "Delete reports; whoever runs the server sets the limit ({--max-stored}).",
)
UPLOAD_TYPE_WRONG = Template("upload-type-wrong", Severity.ERROR, "The data must be sent as {media_type}.")
UPLOAD_PROTOCOL_UNKNOWN = Template("upload-protocol-unknown", Severity.ERROR, "Tus-Resumable must be {version}.")
UPLOAD_NAME_UNREADABLE = Template(
    "upload-name-unreadable",
    Severity.ERROR,
    "Upload-Metadata: filename is no text in base64.",
)
UPLOAD_MISSING = Template(
    "upload-missing",
    Severity.ERROR,
    "There is no such upload.",
    "It may have expired; upload the file again.",
)
UPLOAD_INCOMPLETE = Template(
    "upload-incomplete",
    Severity.ERROR,
    "{name} has not arrived wholly.",
    "Resume its upload first.",
)
UPLOAD_TAKEN = Template(
    "upload-taken",
    Severity.ERROR,
    "An upload belongs to another job already.",
    "Upload the file again.",
)
UPLOAD_OFFSET_WRONG = Template(
    "upload-offset-wrong",
    Severity.ERROR,
    "{received} bytes have arrived.",
    "Ask for the offset (HEAD) and go on from there.",
)
UPLOAD_TOO_LARGE = Template(
    "upload-too-large",
    Severity.ERROR,
    "{name} is larger than this server takes: {max_bytes}.",
    "Compress it, or record fewer steps; whoever runs the server sets the limit ({--max-upload}).",
)
UPLOAD_LONGER_THAN_ANNOUNCED = Template(
    "upload-longer-than-announced",
    Severity.ERROR,
    "More arrives than the {length} bytes that were announced.",
)
UPLOAD_CHECKSUM_UNKNOWN = Template(
    "upload-checksum-unknown",
    Severity.ERROR,
    "Upload-Checksum is none that this server can verify.",
    "Send one of {known:list} and its value in base64.",
)
UPLOAD_CHECKSUM_WRONG = Template(
    "upload-checksum-wrong",
    Severity.ERROR,
    "The data was damaged on its way: its checksum differs.",
    "Send it again.",
)
UPLOAD_METADATA_WRONG = Template(
    "upload-metadata-wrong",
    Severity.ERROR,
    "Upload-Metadata isn't pairs of different keys and values in base64, {max_length} characters at most.",
)
UPLOAD_LOCKED = Template(
    "upload-locked",
    Severity.ERROR,
    "Another request writes to this upload.",
    "Wait until it ends, then resume.",
)
DISK_WITHOUT_ROOM = Template(
    "disk-without-room",
    Severity.ERROR,
    "The server's disk has no room for this file.",
    "Try later, or tell whoever runs it.",
)
DISK_FULL = Template(
    "disk-full",
    Severity.ERROR,
    "The server's disk is full.",
    "Try again later, or tell whoever runs it.",
)
SERVER_BUSY = Template(
    "server-busy",
    Severity.ERROR,
    "The server has as many connections and files open as it may.",
    "Try again in some seconds.",
)
PLAN_TOO_LARGE = Template(
    "plan-too-large",
    Severity.ERROR,
    "The page plans up to {most_tables} tables on {most_ranks} GPUs, and these are {tables} on {ranks}.",
    "`tracekit shard` on the command line takes more.",
)
PLANNER_BUSY = Template(
    "planner-busy",
    Severity.ERROR,
    "Others' plans are being made.",
    "Try again in some seconds.",
)
DATABASE_BUSY = Template(
    "database-busy",
    Severity.ERROR,
    "The server's database is locked or doesn't respond.",
    "Try again in some seconds, or tell whoever runs the server.",
)
DATABASE_UNUSABLE = Template(
    "database-unusable",
    Severity.ERROR,
    "{name} can't be used: {reason}.",
    "Put a backup in its place, or name another directory with {--data}.",
)
DATABASE_DAMAGED = Template(
    "database-damaged",
    Severity.ERROR,
    "{name} is damaged.",
    "Put a backup in its place, or name another directory with {--data}.",
)
DATABASE_FOREIGN = Template(
    "database-foreign",
    Severity.ERROR,
    "{name} has tables that no version of this server made.",
    "Name another database with {--database}, or another directory with {--data}.",
)
DATABASE_NEWER = Template(
    "database-newer",
    Severity.ERROR,
    "{name} was made by a newer tracekit.",
    "Update tracekit, or name another directory with {--data}.",
)
DATABASE_URL_UNUSABLE = Template(
    "database-url-unusable",
    Severity.ERROR,
    "The database's address isn't one of PostgreSQL.",
    "Write it as postgresql://USER@HOST/NAME ({--database}).",
)
FILES_UNREACHABLE = Template(
    "files-unreachable",
    Severity.ERROR,
    "The server can't reach the place where it keeps files.",
    "Try again later, or tell whoever runs it.",
)
FILES_UNUSABLE = Template("files-unusable", Severity.ERROR, "The server can't use its files: {reason}.", "Try later.")
FILES_TOO_MANY = Template(
    "files-too-many",
    Severity.ERROR,
    "{files} files are more than the {max_files} that this server takes.",
    "Whoever runs the server sets the limit ({--max-files}).",
)
FILES_UNPACK_TOO_LARGE = Template(
    "files-unpack-too-large",
    Severity.ERROR,
    "{name} unpacks to more than this server takes: {max_bytes}.",
    "Whoever runs the server sets the limit ({--max-unpacked}).",
)
WORKER_OUT_OF_MEMORY = Template(
    "worker-out-of-memory",
    Severity.ERROR,
    "The job needs more memory than a worker may take: {max_bytes}.",
    "Send fewer steps or one rank; whoever runs the server sets the limit (--memory).",
)
WORKER_TABLES_TOO_LARGE = Template(
    "worker-tables-too-large",
    Severity.ERROR,
    "{reason}",
    "Send fewer steps or one rank; whoever runs the server sets the limit (--memory).",
)
ENGINE_FAILED = Template(
    "engine-failed",
    Severity.ERROR,
    "{reason}",
    "Ask again later, or tell whoever runs the server: jobs of many ranks are worked on elsewhere ({--engine}).",
)
ENGINE_WITHOUT_FILES = Template(
    "engine-without-files",
    Severity.ERROR,
    "{lacking} of {workers} workers of the engine can't run tracekit on the server's files.",
    "Whoever runs the server gives all of them this version of tracekit, and {--data} under the same path.",
)
RANKS_WITHOUT_OPTION = Template(
    "ranks-without-option",
    Severity.ERROR,
    "The {ranks} ranks of this job are worked on one by one, without “{option}”.",
    "Leave it out, or measure one rank with {--ranks}.",
)
JOB_TOO_SLOW = Template(
    "job-too-slow",
    Severity.ERROR,
    "The job took longer than it may: {limit_s} s.",
    "Send fewer steps or one rank; whoever runs the server sets the limit (--time-limit).",
)
GPU_UNKNOWN_TO_SERVER = Template(
    "gpu-unknown-to-server",
    Severity.ERROR,
    "{reason}",
    "The page's search and /api/v1/gpus have all.",
)
CLUSTER_UNKNOWN_TO_SERVER = Template(
    "cluster-unknown-to-server",
    Severity.ERROR,
    "{reason}",
    "The page's field and /api/v1/clusters list those with names.",
)
PRICE_WITHOUT_GPU = Template(
    "price-without-gpu",
    Severity.ERROR,
    "The trace's GPU has a price, but its name isn't known.",
    "Name it in {--source-gpu}, or leave the price out.",
)
FIELD_INVALID = Template("field-invalid", Severity.ERROR, "{field}: {reason}.")
WORKERS_DIED = Template(
    "workers-died",
    Severity.ERROR,
    "A worker died at this job {times} times.",
    "It may need more memory than there is.",
)
SERVER_BUG = Template(
    "server-bug",
    Severity.ERROR,
    "This is a bug in tracekit.",
    "Please report it; whoever runs the server has its log.",
)
TIMELINE_MISSING = Template(
    "timeline-missing",
    Severity.ERROR,
    "There is no timeline.",
    "Its viewer comes with pip install 'tracekit-gpu[{extra}]'.",
)
VALUES_TOO_MANY = Template(
    "values-too-many",
    Severity.ERROR,
    "{option} is too long.",
    "Give {most} values at most, each of up to {max_length} characters.",
)
SERVER_READS_NO_FILES = Template(
    "server-reads-no-files",
    Severity.ERROR,
    "{value}: the server reads no files.",
    "Name what it knows: /api/v1/gpus, /api/v1/clusters.",
)
TOKEN_NEEDED = Template(
    "token-needed",
    Severity.ERROR,
    "{host} can be reached by others, so clients must know a token.",
    "Set TRACEKIT_TOKEN (or {--token}), such as {suggestion}",
)
TOKEN_TOO_SHORT = Template("token-too-short", Severity.ERROR, "The token is shorter than {min_length} characters.")
TOKEN_NOT_ASCII = Template(
    "token-not-ascii",
    Severity.ERROR,
    "The token has characters that a request can't send.",
    "Use letters, digits and signs of ASCII.",
)
WORKER_MEMORY_TOO_SMALL = Template("worker-memory-too-small", Severity.ERROR, "A worker needs {--memory} 2G at least.")
DATA_DIRECTORY_UNUSABLE = Template(
    "data-directory-unusable",
    Severity.ERROR,
    "{path} can't be made: {reason}.",
    "Name another directory with {--data}.",
)
SERVER_NOT_STARTED = Template("server-not-started", Severity.ERROR, "The page didn't start; the lines above say why.")
ADDRESS_UNUSABLE = Template(
    "address-unusable",
    Severity.ERROR,
    "{host}:{port} can't be listened on: {reason}.",
    "Choose another with {--port} or {--host}.",
)
