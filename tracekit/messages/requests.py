"""What is requested: options, stages of the work, the measured run, and output files."""

from tracekit.messages.model import error, name_templates, note, warning

OPTION_VALUE = error("{option} can't be {given}.", "Give {expected}.")
NO_TARGET = error("No target is named.", "Say where to: {--gpu} h100-sxm, {--cluster} 4x8xh100-sxm@ndr400, or both.")
STEPS_NOT_A_RANGE = error("{--steps}: {steps!r} is no step.", "Give a number or a range, such as 7:9.")
PRICE_NOT_A_PAIR = error("{--price}: {price!r} is no price.", "Write it as h100-sxm=2.49, with a point.")
PRICE_NOT_DOLLARS = error("An hour of {gpu} can't cost {given} dollars.", "Give a number, 0 or more.")
PRICES_DIFFER = error("{gpu} has two prices, {first:g} and {second:g} dollars.", "Give it one.")
PRICE_WITHOUT_NAME = error(
    "{--price}: {price:g} dollars could be the price of any of {targets:count GPU}.",
    "Say whose it is: {first}={price:g}.",
)
PRICE_FILE_INVALID = error(
    "{--prices} {path}: {reason}.",
    'Write date = 2026-11-01, then [dollars_an_hour] and lines such as h100-sxm = 2.49 or "A100 SXM 80GB" = 1.29.',
)
RANK_BY_UNKNOWN = error("{--rank-by}: targets aren't ranked by {given!r}.", "Give {known:list}.")
RANK_BY_WITHOUT_PRICE = error(
    "{--rank-by} {ranked_by}: no target has a price.", "Give some with {--price} or {--prices}."
)
CPU_OF_GPU_TRACE = error(
    "{path} wasn't recorded on {cpu}: it has GPU activity.",
    "Name its GPU by {--source-gpu}, or leave that out; what a GPU took tells nothing of a CPU.",
)
CPU_OF_SEVERAL_RANKS = error(
    "A job of several ranks can't run on {cpu}: collectives between CPUs aren't known.",
    "Predict one rank's trace, or the program by its name.",
)
CPU_WITHOUT_ENGINE = error(
    "{engine} has kernels of GPUs only, so its steps can't run on {cpu}.",
    "Predict the model itself: its program or config.json without {--framework}, {--decode} and {--prefill}.",
)
CPU_WITHOUT_OPTION = error(
    "{option} means nothing for {cpu}, whose cores run the ops themselves.", "Leave it out, or predict a GPU."
)
CPU_TIMES_FOR_GPU = error(
    "What {cpu} took tells nothing of a GPU.",
    "Leave out {--source-gpu} for GPUs, whose times follow from the ops' shapes, and predict CPUs by another command.",
)
RUN_LENGTH_MALFORMED = error(
    "{option} {given!r} is no amount of work.", "Give a number above 0, such as 50000, 300k, 2B or 1e9."
)
RUN_LENGTH_GIVEN_TWICE = error(
    "{--steps-to-run}, {--tokens-to-run} and {--samples-to-run} each say how long the job runs.", "Give one of them."
)
RUN_UNIT_UNKNOWN = error(
    "The trace doesn't tell how many {unit} a step has.",
    "Give steps with {--steps-to-run}, or a rank's samples in a step with {--samples}.",
)
CRITICAL_BATCH_MALFORMED = error(
    "{given!r:.60} is no gradient noise scale.",
    "Give tokens or samples, such as {--critical-batch} 1.5M, or a .csv of gradient norms.",
)
CRITICAL_BATCH_WITHOUT_RUN = error(
    "{--critical-batch} says how long a whole run takes to a loss.",
    "Give its length at the present batch: {--tokens-to-run} 2B.",
)
CRITICAL_BATCH_WITHOUT_UNITS = error(
    "The trace doesn't tell what a step has of samples or tokens, which {--critical-batch} counts.",
    "Give a rank's samples in a step with {--samples}.",
)
NORMS_UNREADABLE = error(
    "{path} can't be read: {reason}.", "Give a .csv with the columns batch and grad_norm, a row for each gradient."
)
NORMS_TELL_NOTHING = error(
    "The norms in {path} tell no noise scale: it takes gradients at two batch sizes, longer at the smaller one.",
    "Log more gradients of each size.",
)
RUN_UNIT_DIFFERS = error(
    "A step of this trace is counted in {counted}, not in {unit}.", "Give the work in {counted} or steps."
)
PREDICTIONS_WITH_OPTIONS = error(
    "Predictions are reported as they were made; options don't apply.", "Give the options to the prediction."
)
TOKENS_NOT_SPECULATED = error(
    "No decode batch of the trace has more tokens than sequences, so that none are speculated.",
    "Leave out {--accepted-tokens}.",
)
ACCEPTED_TOKENS_TOO_MANY = error(
    "{--accepted-tokens} {accepted:number}: a decode batch verifies {verified:number} tokens for a sequence.",
    "Give from 1 to as many.",
)
FRAMEWORK_UNKNOWN = error(
    "{--framework} {framework!r} is no serving engine.",
    "Give vllm, sglang or trtllm, with its version if you know it: vllm==0.19.0.",
)
BATCH_FACTOR_MALFORMED = error(
    "{batch!r} is no batch.", "Give a multiple of the trace's, from {least} to {most}, or max."
)
HOST_MALFORMED = error(
    "{--host} {host!r} is no host.",
    "Give same, typical, a name that `tracekit hosts` lists, or the speed that `tracekit info` prints of a trace of "
    "that machine: {least:g} to {most:g}.",
)
HOST_BENCH_NEEDS_TORCH = error("PyTorch isn't installed here.", "Run {--host} where the job's PyTorch is.")
POWER_CAP_MALFORMED = error("{--power-cap} {power!r} is no power.", "Give watts for one GPU, such as 500W.")
POWER_CAP_TOO_LOW = error(
    "{--power-cap} {power:g} W is lower than a {gpu} can be limited to.", "Give {least:.0f} to {most:.0f} W."
)
CLOCK_MALFORMED = error("{option} {clock!r} is no clock.", "Give megahertz, such as 1200MHz.")
CLOCK_TOO_LOW = error("{option} {clock:g} MHz is lower than a {gpu} runs.", "Give {least:.0f} to {most:.0f} MHz.")
HOST_UNKNOWN = error(
    "{--host} {host} can't be related to the trace's host, whose speed isn't known: it holds too few of PyTorch's ops.",
    "{--host-speed} scales it by a factor.",
)
HOST_GIVEN_TWICE = error("{--host} and {--host-from} each name the target's CPU.", "Give one of them.")
HOST_FROM_UNKNOWN = error(
    "{--host-from} {path}: the speed of its host isn't known: it holds too few of PyTorch's ops, or they disagree.",
    "Record a step of any eager PyTorch job on that machine, with CPU activities.",
)
TIME_WITHOUT_UNIT = error("{--unprofiled-step} {time!r} is no time.", "Give a unit too: 12.3ms.")


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


NOT_LOADED = error("{given} is no trace.", "Load it: tk.load(path).")
TIMES_OVERFLOW = error("The {subject} would take more than 30 years.", "Change them less.")

UNPROFILED_STEP_TOO_LONG = error(
    "A step of {step_time_us} without the profiler is longer than the recorded one, {recorded_us}.",
    "Give the time of the same step.",
)
UNPROFILED_STEP_TOO_SHORT = error(
    "A step of {step_time_us} without the profiler is shorter than what the recorded step takes with no work of the "
    "CPU at all, {least_us}.",
    "Give the time of the same step.",
)
PROFILER_OVERHEAD_REMOVED = note(
    "A step of {step_time_us} without the profiler, instead of {recorded_us} as recorded, leaves {host_pct} of the "
    "CPU's own work; the rest is taken for the profiler's."
)
RULES_OFF = note("Replayed without the inference rules {rules:list}.")

SOURCE_GPU_RENAMED = warning("The trace describes its GPU as {described}: its times count as {named}'s, as requested.")
SOURCE_GPU_UNRESOLVED = warning("{reason}", "Name the GPU with {--source-gpu}, or describe it in a .toml file.")

COLLECTIVES_UNLIKE = warning("{collectives:count collective} with another kind or size on another rank")
COLLECTIVES_UNEVEN = warning("{collectives:count collective} that not every rank has as often")
COLLECTIVES_AMBIGUOUS = warning(
    "{collectives:count collective} that can't be told apart, as the process groups aren't recorded"
)
MESSAGES_UNPAIRED = warning("{collectives:count message} of which the other rank isn't recorded")
COLLECTIVES_APART = warning("{collectives:count collective} that don't coincide in time")


RULE_UNKNOWN = error("There is no inference rule {name!r}.", "The rules are {known:list}.")


WAITING_FOR_WORKER = note("waiting")
READING_TRACE = note("read trace")
READING_FILE = note("read file {number} of {files}")
READING_CAPTURE = note("read capture {name}")
READING_SIDE = note("read {place}")
COMPILING_LOOPS = note("compile the inner loops, once per installation: 5 to 20 s")
CLASSIFYING_KERNELS = note("classify kernels")
LINKING_DEPENDENCIES = note("link dependencies")
REPLAYING = note("replay")
EXAMINING = note("examine")
CAPTURING = note("capture the program on tensors without data")
MEASURING_HOST = note("measure this machine's CPU: a quarter of a minute")
MEASURING_CPU = note("measure this machine's CPU")
PREDICTING = note("predict")
PREDICTING_TARGET = note("predict {target}, {number} of {targets}")
BUILDING_REPORT = note("put the report together")
PREDICTING_LAYOUTS = note("predict layouts")
PLANNING_SHARDS = note("plan for {cluster}")
CHECKING_FILES = note("check the files")
WRITING_FORM = note("write {form}")
REDACTING = note("redact the trace")
STORING_REPORTS = note("keep the reports")


CONFIGURATION_UNREADABLE = error("{path} can't be read as TOML: {reason}.", "`tracekit config --help` has an example.")
CONFIGURATION_KEY_UNKNOWN = error("{path}: {key!r} is nothing that can be configured.", "Did you mean {known:list}?")
CONFIGURATION_VALUE = error("{path}: {key} can't have this value.", "`tracekit config --help` has an example.")
CONFIGURATION_USED = note("From {path}: {options}")
"""The options as the command line takes them."""
CONFIGURED_SOURCE_GPU = note("From {path}: {--source-gpu} {gpu}, as the trace doesn't tell its GPU.")
SUBJECT_UNKNOWN = error(
    "{name!r} is neither the code of a message nor a page of the documentation.",
    "`tracekit explain` lists the pages; a code ends each error.",
)
SUBJECT_MISTYPED = error(
    "{name!r} is neither the code of a message nor a page of the documentation.", "Did you mean {near:list}?"
)


PACKAGE_MISSING = error("{distribution} can't be imported ({reason}).", "`pip install {install}`")
GPU_REFUSED = error("{reason}", "{hint}")
EXTRA_MISSING = error("{distribution} can't be imported ({reason}).", "`pip install 'tracekit-gpu[{extra}]'`")


name_templates(globals())
