"""The files of a trace: what is in them, what they lack, and how they belong together."""

from tracekit.messages.model import error, name_templates, note, warning

TRACES_NOT_GIVEN = error("No trace was given.")
INPUT_NOT_A_PATH = error("{given} is no path.", "Give the path of a trace, or a list of paths.")
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


TIME_BASE_ABSURD = error("{path} is no PyTorch profiler trace: its baseTimeNanoseconds is {base:.40}.")
EVENTS_WITHOUT_TIMES = error("{path} holds {events:,} events, but none with a usable time.", "Record the trace again.")
TRACE_EMPTY = error("{path} holds no GPU activity and no CPU ops.", "Is it a trace of torch.profiler?")
ALL_KERNELS_LOST = error(
    "{path} holds {launches:,} launches but no GPU activity: the profiler lost the kernels.",
    "Record fewer steps; see that no other profiler uses the GPU (nsys, ncu, DCGM), and that CUPTI fits the driver.",
)
TRACE_OF_OTHER_DEVICE = error(
    "{path} holds no GPU activity in a category that is read. Left out: {categories:list}.",
    "Devices of CUDA, ROCm and XPU are read.",
)
TRACE_WITHOUT_GPU = error(
    "{path} holds {ops:,} CPU ops but no GPU activity.",
    "Record it where PyTorch finds a GPU, with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
)
LAUNCHES_WITHOUT_KERNELS = error(
    "{path} is damaged: {missing:,} of {launches:,} launches have no kernel in it, and {lost:,} events can't be read, "
    "the first at byte {offset:,}.",
    "Copy or record the file again.",
)
TRACES_MERGED = error(
    "{path} is merged from the traces of {processes} processes.",
    "Give the files that the ranks wrote, or the folder they are in.",
)

RANKS_IN_ONE_FILE = warning(
    "{path} holds the traces of {ranks:count rank}, which say their ranks: read as if each were a file."
)
RANKS_BY_DEVICE = warning(
    "{path} holds the traces of {ranks:count rank}, told apart and numbered by their GPUs; {left_out:count event} of "
    "other processes left out.",
    "Give a file per rank if that is wrong: trace_rank0.json, trace_rank1.json.",
)
RANKS_SHARE_GPU = warning(
    "{path} holds the traces of {ranks:count process}, read as ranks; several ran on one GPU, so their times hold one "
    "another's work; {left_out:count event} of other processes left out.",
    "Give each process a GPU of its own, or record each by itself.",
)

EVENTS_LOST = warning("{lost:,} of {events:,} events lost at byte {offset:,}: the file is damaged.")
EVENTS_REPAIRED = warning("{repaired:,} of {events:,} events had invalid JSON and were repaired.")
EVENTS_CUT = warning("The file is cut short after {length:,} bytes: events may be missing.")
STEPS_CUT = warning(
    "Steps {steps:list} left out: the file ends before all of their work.", "Copy or record the file again."
)
DATA_BEHIND_TRACE = warning(
    "Something follows the end of the trace at byte {offset:,} and was not read.",
    "Give traces of several ranks as a file each, if they don't say their ranks.",
)
METADATA_LOST = warning("Top-level keys of the file are damaged: GPU, rank or time base may be missing.")
EVENTS_UNTIMED = warning("{events:count event} without a time left out.")
EVENTS_DISTANT = warning("{events:count event} left out, more than a week from the others.")
EVENTS_BACKWARD = warning("{events:count event} with an end before the beginning: the duration is set to zero.")
TIMES_ABSOLUTE = note("{events:count event} whose time counts from 1970 by itself: baseTimeNanoseconds isn't added.")
RANGES_WITHOUT_THREAD = warning("{ranges:count named range} left out, whose process or thread isn't a number.")
STEP_MARKS_UNNUMBERED = warning("{marks:count ProfilerStep mark} left out, whose number is missing or too long.")
OP_INPUTS_MALFORMED = warning("The inputs of {ops:count op} left out, as they aren't written as the profiler does.")
ACTIVITY_SIZES_IMPOSSIBLE = warning("The {column} of {events:count event} on the GPU left out, as they are impossible.")
DEVICE_NOT_RECORDED = warning(
    "The trace doesn't describe its GPU (no deviceProperties).", "Name it with {--source-gpu}."
)
OPS_NOT_RECORDED = warning(
    "No CPU ops were recorded: kernels can't be told apart by op or shape.", "Record with ProfilerActivity.CPU."
)
SHAPES_NOT_RECORDED = warning(
    "Shapes were not recorded: kernels are scaled by class, not modelled.", "Record with record_shapes=True."
)
STACKS_NOT_RECORDED = warning(
    "No Python calls were recorded: kernels have no module or Python line.", "Record with with_stack=True."
)


FORMAT_DAMAGED = error("{path} is no {form} that can be read ({reason:.200}).", "Copy or export the file again.")
FORMAT_NEEDS_PACKAGE = error("{path}: reading {form} needs another package.", "`pip install 'tracekit-gpu[formats]'`")
DATABASE_OF_OTHER_TOOL = error(
    "{path} is an SQLite database, but none of Nsight Systems (it has no table StringIds) and none of rocprofv3.",
    "Export one: `nsys export --type sqlite report.nsys-rep`.",
)
NSIGHT_WITHOUT_CUDA = error(
    "{path} holds no kernels, copies or memsets.",
    "Record with `nsys profile --trace=cuda,nvtx`, with `--cuda-graph-trace=node` where CUDA graphs run.",
)
ROCPROF_WITHOUT_KERNELS = error(
    "{path} holds no kernels and no copies.", "Record with `rocprofv3 --kernel-trace --hip-trace --memory-copy-trace`."
)
XPLANE_WITHOUT_KERNELS = error(
    "{path} holds no kernels of a GPU.", "Profiles of TPUs aren't read; of GPUs, profile with jax.profiler.trace."
)
CHAKRA_WITHOUT_KERNELS = error(
    "{path} has no node that a GPU runs.",
    "Link the trace of the host with that of the device first: `chakra_trace_link`.",
)
CHAKRA_CIRCULAR = error("{path} is no trace: {nodes:count node} wait for one another in a circle.")
TORCH_PERFETTO_WITHOUT_KERNELS = error(
    "{path} holds no kernels, copies or memsets of a GPU.", "Record with ProfilerActivity.CUDA."
)
PERFETTO_WITHOUT_KERNELS = error(
    "{path} holds no kernels and no copies as rocprofv3 or PyTorch's profiler write them.",
    "Of other programs, give the JSON.",
)
FORMAT_LACKS = warning("Read as a trace of {tool}, which has no: {lacks:list}.", "A trace of torch.profiler has them.")
FORMAT_WITHOUT_OPS = warning("No ops were recorded: kernels can't be told apart by op or shape.", "{advice}")
FORMAT_WITHOUT_SHAPES = warning("Shapes were not recorded: kernels are scaled by class, not modelled.", "{advice}")


EXECUTION_TRACE_TOO_LARGE = error("{path} holds more than {limit_bytes}.")
EXECUTION_TRACE_MALFORMED = error(
    "{path} is no execution trace ({reason}).", "Record one with torch.profiler's ExecutionTraceObserver."
)
EXECUTION_TRACE_SCHEMA = error(
    "{path} is no execution trace that is read: its schema is {schema!r:.40}; known are 1.0 and 1.1.",
    "Record one with torch.profiler's ExecutionTraceObserver.",
)
EXECUTION_TRACE_INVALID = error("{path} is no valid JSON: {reason}.", "Copy or record the file again.")
EXECUTION_TRACE_WITHOUT_OPS = error(
    "{trace} holds no CPU ops that {path} could be joined to.",
    "Record it with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA].",
)
EXECUTION_TRACE_OF_OTHER_PROCESS = error(
    "{path} is of process {process}, {trace} of process {processes:list}.",
    "Give the execution trace that was recorded together with this trace, of the same rank.",
)
EXECUTION_TRACE_WITHOUT_COMMON_IDS = error(
    "None of the record function ids of {trace} is in {path}.",
    "Give the execution trace that was recorded together with this trace, of the same rank.",
)
EXECUTION_TRACE_OPS_DIFFER = error(
    "{path} is of another run than {trace}: {differing:,} of {common:,} record function ids belong to ops of another "
    "name.",
    "Give the execution trace that was recorded together with this trace, of the same rank.",
)
EXECUTION_TRACE_SHAPES_DIFFER = error(
    "{path} is of another run than {trace}: its {op} has other shapes.",
    "Give the execution trace that was recorded together with this trace, of the same rank.",
)
EXECUTION_TRACE_WITHOUT_IDS = error(
    "{trace} has no record function ids, and its ops aren't exactly those of {path}.",
    "Record both anew with PyTorch 2.3 or newer, with the ExecutionTraceObserver given to the profiler.",
)
EXECUTION_TRACE_SKIPPED = warning("The execution trace was left out. {error}")
EXECUTION_TRACE_JOINED = warning(
    "Shapes of {ops:count op} and sizes of {collectives:count collective} were filled in from {path}."
)

CAPTURE_SKIPPED = warning("The capture trace was left out. {error}")
CAPTURE_JOINED = warning(
    "Ops and shapes of {known_kernels:,} of {kernels:,} kernels in {known_replays:,} of {replays:,} graph replays come "
    "from the capture in {path}."
)
CAPTURE_PADDED = warning("{replays:count graph replay} taken as padded, such as {size} as captured for {captured_for}.")
CAPTURES_AMBIGUOUS = warning(
    "{replays:count graph replay} with captures of different shapes that fit: the kernels stay without shapes."
)
CAPTURES_WITHOUT_MATCH = warning("{unmatched:,} of {replays:,} graph replays fit none of the captures that were given.")


EVENTS_READ = note("{events:count event} read.")
CATEGORY_NOT_READ = warning(
    "{events:count event} left out, of categories that aren't read: {categories:list}.",
    "If that is work of a GPU, predictions lack it.",
)
PHASE_NOT_READ = note("{events:count event} left out, as they aren't spans of time: {phases:list}.")
SPANS_UNMATCHED = warning(
    "{events:count event} left out, as a begin without an end or an end without a begin.",
    "Record the trace again; events of the thread may be missing.",
)
NAMES_CHANGED = note("{names:count name} with control characters or broken UTF-8, which were replaced.")
METADATA_NOT_READ = note("{keys:count top-level key} left out, longer than {limit_bytes}.")
EVENTS_COUNTED = note("{read:,} of {events:count event} read; left out: {left_out:list}.")
EVENTS_ALL_READ = note("all {events:count event} read.")


RANK_NOT_GIVEN = error("None of the files is of rank {rank}.", "Given: {given}.")
RANK_NOT_READ = error("Rank {rank} was not read from {path}.", "Read: {read:list}.")
RANK_NOT_RECORDED = error("Rank {rank} was not read from {path}.", "It doesn't say which rank it is of.")
RANKS_AMBIGUOUS = error(
    "{files} files, but which rank is {names}? The trace doesn't say.",
    "Put it into their names: trace_rank0.json.gz, trace_rank1.json.gz. Or give one file, if they are of several "
    "runs, or one process recorded them one after the other (a schedule without repeat=1).",
)
RANK_GIVEN_TWICE = error(
    "{path} and {other} are both of rank {rank}.",
    "Are they of two runs, or of a schedule without repeat=1? Give one file of each rank.",
)

RANK_CHOSEN = warning("Rank {rank} was read, of the {given} that were given.", "Choose another with {--ranks}.")
RANK_MISSING = warning("Rank {rank} of {world_size} was not given.")
RANKS_MISSING = warning("Ranks {ranks} of {world_size} were not given.")
RANKS_LACK_COLLECTIVES = warning(
    "Left out: rank {ranks}. {launches:count launch} have no kernel there, {collectives:count collective} that other "
    "ranks took part in among them. The rest is reported as if they never arrived late.",
    "Record fewer steps at once: full buffers lose kernels.",
)
WORLD_SIZES_DIFFER = warning("The files are of jobs of {world_sizes:list} ranks: are they of one run?")
GPUS_DIFFER = warning("The ranks ran on different GPUs: {gpus:list}.")
RECORDED_APART = warning("The ranks were recorded {minutes:,.0f} minutes apart: are they of one run?")
RANK_IMPOSSIBLE = warning("distributedInfo is wrong: its {key} {value:.40} is impossible, and was left out.")
RANK_BEYOND_WORLD = warning("distributedInfo is wrong: rank {rank} is beyond its {world_size} ranks.")


IDS_AMBIGUOUS = warning(
    "{ambiguous:,} of {kernels:,} kernels share their correlation id with others that no CUDA graph launched: which "
    "call and op they belong to isn't known."
)
IDS_BY_ORDER = note(
    "{kernels:,} kernels share their correlation id with others: they were matched to launches by their order."
)
IDS_EXTERNAL = note("The trace has no correlation ids: kernels were matched to launches by their External ids.")
IDS_REUSED = note(
    "{ids:count correlation id} used again by later launches: each use was matched to its own work by order in time."
)


TIMES_DISPLACED = warning(
    "{count:count event} on the GPU started before its own launch or out of its stream's order, the first by {off_us} "
    "({name}, launched {at_us} into the trace). It was placed after what was launched before it.",
    "Record the trace again if many are.",
)
TIMES_OVERRUN = warning(
    "{count:count event} on the GPU outlasted the next one on its stream, or the call that waited for it; the longest "
    "took {longest_us} ({name}, {at_us} into the trace). It was cut there."
)
CLOCK_OFFSET = warning(
    "GPU times are off by {late_us:change} against the CPU's clock, by launches and blocking calls. They were "
    "corrected."
)
CLOCK_DRIFT = warning(
    "GPU times drift from {first_us:change} to {last_us:change} against the CPU's clock. They were corrected."
)
TIMES_OUTSIDE = warning(
    "{count:count event} a minute or more outside the recording left out, the first {off_us} from its middle ({name})."
)
DURATIONS_ZERO = warning(
    "{count:count event} on the GPU lasted 0, the first {at_us} into the trace ({name}). The median of its like was "
    "taken, up to the next one on its stream."
)
WAITS_TOO_SHORT = warning(
    "{count:count call} returned before what it waited for had ended, the first {at_us} into the trace ({name}). It "
    "was lengthened."
)
OPS_OVERRUN = warning(
    "{count:count op} outlasted the op or annotation around it; the longest took {longest_us} ({name}, {at_us} into "
    "the trace). It was cut there."
)
CALLS_OVERRUN = warning(
    "{count:count call} outlasted the op around it, or the start of what its thread did next; the longest took "
    "{longest_us} ({name}, {at_us} into the trace). It was cut there."
)
DURATIONS_BELOW_BOUND = warning(
    "{count:count kernel} lasted less than the work of its op takes at this GPU's peak, the first by {under_us} "
    "({name}, {at_us} into the trace). Its time was kept.",
    "See that {--source-gpu} is right; or durations were lost.",
)


PLACES_WITHOUT_FILE = error("{path} is no file here that ends in .json or .gz.")
PLACES_WITHOUT_JSON = error("{path} isn't whole JSON: {reason}.")
PLACES_OF_SEVERAL_RANKS = error("{path} holds several ranks.")
PLACES_CHANGED = error("{path} has other events than were read from it ({events} of them).")
OVERLAY_NOT_POSSIBLE = error(
    "HTA can't lay the critical path over the trace: {reason}", "Unpack the trace and load it again."
)


STEP_BEGINS_LATE = warning(
    "The first kernel started {waited_us} after its launch, as the GPU was busy with work from before the recording: "
    "the step begins at that kernel.",
    "Record several steps, after a warm-up.",
)
STEPS_MARKED_IN_PART = warning(
    "Ranks {ranks:list} mark no steps as the others do, so that each rank's whole trace counts as one.",
    "Mark steps with profiler.step() on every rank.",
)
STEPS_OVERLAP = warning(
    "The GPUs are busy for {kernel_us} in a step of {step_us}: the ranks' steps overlap, so that a rank's work for one "
    "step falls into the time of another.",
    "Choose others with {--steps}, or measure one rank with {--ranks}.",
)
STEP_NUMBERS_REPEATED = warning(
    "The marks of steps repeat their numbers ({labels}): the steps are numbered {numbers} in order of time.",
    "{--steps} chooses by these.",
)
STEPS_OF_OTHER_WORK = warning(
    "Steps {others} do other work than steps {usual}, as those of validation and of training do: they aren't measured.",
    "Measure some with {--steps} {steps}.",
)
STEPS_RENUMBERED = note(
    "Ranks {ranks:list} number their steps differently: their collectives join their steps to the first rank's."
)
STEPS_JOINED_BY_TIME = note(
    "Ranks {ranks:list} number their steps differently: their steps are joined to the first rank's by time, as the "
    "collectives of several steps are alike."
)
STEPS_JOINED_BY_NUMBER = warning(
    "The steps of ranks {ranks:list} are joined to the first rank's by number or order: the clocks are more than half "
    "a step apart, and the collectives of several steps are alike, or none is of both ranks.",
    "Record with PyTorch 2.4 or newer, which numbers collectives.",
)
STEP_NOT_FOUND = error("The trace has no step {steps}.", "It has {known}.")
STEPS_WITHOUT_GPU_WORK = error("Nothing ran on the GPU in the steps to measure.", "Choose others with {--steps}.")
STEP_TIME_ZERO = error(
    "{path} has no step that takes any time.", "Its events' times are all the same: record the trace again."
)
STEPS_FROM_UPDATES = note("No ProfilerStep is marked: a step runs from one update of the optimizer to the next.")
STEPS_FROM_WORKER = note(
    "No step is marked: each call of {name:.80} in Python is one.",
    "If that is wrong, switch the rule off: {--without-rules} worker-call-steps.",
)
STEPS_FROM_RANGES = note(
    "No ProfilerStep is marked: each range {name!r:.80} is a step, as they repeat with about the same GPU work.",
    "If that is wrong, switch the rule off: {--without-rules} repeated-range-steps.",
)
STEPS_FROM_GRAPHS = note(
    "No step is marked: each round of {name} graph launches is one, as they repeat in this order.",
    "If that is wrong, switch the rule off: {--without-rules} graph-launch-steps.",
)
STEP_FROM_RANGE = note(
    "No step is marked: the range {name!r:.80} is the step, and ranges before it that prepare the run are left out.",
    "If that is wrong, switch the rule off: {--without-rules} setup-ranges.",
)
STEP_WITHOUT_SETUP = note(
    "No step is marked: all but what prepares the run counts as one. Left out, with what lies before: {name:.200}.",
    "If that is wrong, switch the rule off: {--without-rules} setup-ranges.",
)
FIRST_TOKEN_ASSUMED = note(
    "The time to first token is that of one batch with the prompt: no queueing, and the whole prompt in it."
)
OUTPUT_TOKEN_ASSUMED = note(
    "The time per output token is that of a batch in which each sequence gets one token; prefill between such batches "
    "adds to it."
)
TOKENS_SPECULATED = note(
    "A decode batch verifies {verified:number} tokens for a sequence (speculative decoding). From 1 to all of them are "
    "accepted: the likely figures are for {accepted:number}.",
    "{--accepted-tokens} tells.",
)
TOKENS_ACCEPTED = note(
    "A decode batch verifies {verified:number} tokens for a sequence (speculative decoding); {accepted:number} are "
    "accepted, as given."
)
ACCEPTANCE_UNKNOWN = warning(
    "The trace doesn't tell how many of the speculated tokens are accepted: throughput, dollars and hours are for "
    "{likely:mean token} in a step, and intervals hold {least:mean} to {most:mean}.",
    "{--accepted-tokens} tells.",
)
PREFILL_NOT_TRACED = note(
    "The trace has no batch with a prompt, so that the time to first token isn't known.", "Record while prompts arrive."
)
DECODE_NOT_TRACED = note(
    "The trace has no decode batch, so that the time per output token isn't known.",
    "Record while tokens are generated.",
)


name_templates(globals())

SOURCES = {
    template.code: template
    for template in (
        *(STEPS_FROM_UPDATES, STEPS_FROM_WORKER, STEPS_FROM_RANGES, STEPS_FROM_GRAPHS),
        *(STEP_FROM_RANGE, STEP_WITHOUT_SETUP),
    )
}
"""Messages that say by what steps were found, by code."""
