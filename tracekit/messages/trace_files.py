"""Trace files that cannot be opened, unpacked or decoded."""

from tracekit.messages.model import error, name_templates, warning

TRACES_NOT_GIVEN = error("No trace was given.")
TRACE_NAME_EMPTY = error("An empty name was given for a trace.", "Is a variable of the shell unset?")
STDIN_EMPTY = error("Nothing comes from standard input.", "Pipe a trace into it, or name a file.")
FILE_NOT_FOUND = error("{path}: no such file.")
FILE_NAME_MISTYPED = error("{path}: no such file.", "Did you mean {similar:list}?")
FILE_UNREADABLE = error("{path} can't be read: {reason}.")
FILE_EMPTY = error("{path} is empty.", "Was the profiler stopped before the job ended?")
GLOB_WITHOUT_MATCH = error("{path}: nothing matches.")
TRACES_NOT_FOUND = error(
    "{path} holds no traces ({others:count other file}).",
    "Their names end in .json, .sqlite, .db, .pftrace, .xplane.pb or .et, also with .gz or .zst, or in .zip; in a "
    "directory they may lie one level down.",
)
PROTOCOL_NEEDS_PACKAGE = error("{uri}: reading {protocol}:// needs another package.", "`pip install {package}`")
PROTOCOL_UNREADABLE = error("{uri}: reading {protocol}:// needs another package ({reason}).")

ARCHIVE_TOO_LONG = error("{path} holds more than {files:,} files.", "Unpack it, and give those that are to be read.")
ARCHIVE_EMPTY = error("{path} holds no files.")
ARCHIVE_DAMAGED = error("{path}: the zip archive is cut short or corrupt ({reason}).", "Copy the file again.")
ARCHIVE_ENCRYPTED = error("{path} is encrypted.", "Unpack the archive first.")
ARCHIVE_METHOD_UNKNOWN = error("{path} can't be unpacked ({reason}).", "Unpack the archive first.")
ARCHIVED_FILE_DAMAGED = error("{path} is corrupt ({reason}).", "Copy the file again.")
ARCHIVE_IN_FILE = error("{path} is a zip archive inside another file.", "Unpack it first.")
ARCHIVES_JOINED = warning("{path} holds more than one archive: what isn't in the last table of contents was not read.")
ZIP_DATA_DAMAGED = warning("The zip data is cut short or corrupt (after {decompressed:,} decompressed bytes).")
COMPRESSED_DATA_CUT = warning("The {compression} data ends early (after {decompressed:,} decompressed bytes).")
COMPRESSED_DATA_CORRUPT = warning("The {compression} data is corrupt (after {decompressed:,} decompressed bytes).")
COMPRESSED_DATA_FOLLOWED = warning(
    "The {compression} data is followed by something else (after {decompressed:,} decompressed bytes)."
)
FILE_DAMAGED = error("{path} is damaged. {damage}", "Copy or record the file again.")

FILE_CUT_SHORT = error(
    "{path} is cut short: the JSON ends after {length:,} bytes without its closing brackets.",
    "Copy or record the file again; was the job stopped while the profiler wrote?",
)
JSON_INVALID = error("{path} is no valid JSON.", "Copy or record the file again.")
JSON_NOT_AN_OBJECT = error("{path} is no JSON object.", "Expected a PyTorch profiler trace (.json or .json.gz).")
JSON_WITHOUT_EVENTS = error(
    "{path} is JSON, but not a PyTorch profiler trace (it has no traceEvents).",
    "Export one with torch.profiler's export_chrome_trace or tensorboard_trace_handler.",
)
JSON_EVENTS_NOT_A_LIST = error(
    "{path} is JSON, but its traceEvents is no list of events.",
    "Give the file as torch.profiler wrote it: export_chrome_trace or tensorboard_trace_handler.",
)
TRACE_OF_OTHER_TOOL = error(
    "{path} was written by {tool}, not by PyTorch's profiler.",
    "Give a trace of torch.profiler: export_chrome_trace or tensorboard_trace_handler.",
)
TRACE_OF_ROCPROF_V1 = error(
    "{path} was written by rocprof (v1 or v2), whose JSON has neither launches nor ops as they are read.",
    "Record with `rocprofv3 --runtime-trace --output-format json`, or with torch.profiler.",
)
EVENTS_UNREADABLE = error(
    "{path} is damaged: {lost:,} of {events:count event} can't be read, the first at byte {offset:,}.",
    "Copy or record the file again.",
)
NUMBERS_WITH_COMMAS = error(
    "{path} is no valid JSON: numbers have decimal commas, as in {example}. {lost:,} of {events:count event} can't be "
    "read, the first at byte {offset:,}.",
    "Write it with decimal points: something changed the numbers, such as the locale of a program that wrote the file.",
)
FILE_EMPTY_UNPACKED = error("{path} is empty once unpacked.", "Was the profiler stopped before the job ended?")
FILE_IN_UTF16 = error("{path} is UTF-16 text, and JSON is UTF-8.", "Convert it: `iconv -f UTF-16 -t UTF-8`.")
FILE_IS_TAR = error("{path} is a tar archive.", "Unpack it first; zip archives are read as they are.")
FILE_IS_PARQUET = error(
    "{path} is a single Parquet table.",
    "Of Nsight Systems' export name the whole folder; where only files can be given, export with --type sqlite.",
)
FILE_COMPRESSED_TWICE = error("{path} is compressed twice.", "Unpack it once.")
COMPRESSION_UNKNOWN = error(
    "{path} is compressed in a way that isn't read.", "Unpack it first; .gz, .zst and .zip are read as they are."
)
FILE_IS_WEB_PAGE = error(
    "{path} is a web page.", "Was a login's or an error's page saved in its place? Download the trace anew."
)
FILE_IS_LFS_POINTER = error("{path} is Git LFS's pointer to a file.", "Fetch the file itself: `git lfs pull`.")
FILE_ENDLESS = error("{path} has more than {limit_bytes} of text, which no trace has.", "Is it endless?")
FILE_UNPACKS_TOO_FAR = error("{path} unpacks to more than {ratio} times its size, which no trace does.")
FILES_TOO_MANY_TO_READ = error(
    "{files:,} files are more than the {max_files:,} that are read at once.",
    "Name one of the ranks with {--ranks}, or give fewer files.",
)
NAMES_TOO_MANY = error(
    "{path} has {names:,} different names of kernels, more than the {max_names:,} that are read.",
    "Record fewer steps, or give names without numbers that grow.",
)

MEMORY_SIZE_INVALID = error("{size!r:.40} is no size of memory.", "Give one such as 512M or 2G.")
TRACE_TOO_LARGE = error(
    "{path} needs more than {limit_bytes} of memory.", "Allow more with {--memory}, or record fewer steps."
)
TRACES_TOO_LARGE = error(
    "{path} and the files in front of it need more than {limit_bytes} of memory.",
    "Allow more with {--memory}, or read fewer ranks ({--ranks}).",
)
CACHE_NOT_PRIVATE = warning(
    "Decoded traces are neither read from nor kept in {path}: it is another user's, or anybody may write to it.",
    "Make it yours alone (chown, chmod go-w), or name another with XDG_CACHE_HOME.",
)
CACHE_NOT_CLEARED = error("{path} can't be cleared: {reason}.")

FILES_NOT_TRACES = warning(
    "{files:count file} left out, no trace by its name (.json, .json.gz, .json.zst, .zip): {names}."
)
FILES_DAMAGED = warning("{files:count file} left out, damaged beyond reading: {names}.")
FILES_WITHOUT_GPU = warning("{files:count file} left out, without GPU activity: {names}.")
FILES_OF_OTHER_KIND = warning("{files:count file} left out, not one rank's PyTorch profiler trace: {names}.")
FILES_BESIDE_UNREADABLE = error("{error} Nor can {others:count other file} beside it be read.")

name_templates(globals())
