"""What-if edits: what is wrong with one, and what each changed."""

from tracekit.messages.model import Severity, Template

EDIT_REFUSED = Template("edit-refused", Severity.ERROR, "{--what-if} '{edit}': {error}")
EDIT_MALFORMED = Template("edit-malformed", Severity.ERROR, "{--what-if} '{edit}': {error}", "Write {usage}.")
HOST_SPEED_MALFORMED = Template(
    "host-speed-malformed",
    Severity.ERROR,
    "{--host-speed} {speed}: {error}",
    "Write SPEED, or python=SPEED,op=SPEED,launch=SPEED.",
)
EDIT_UNKNOWN = Template(
    "edit-unknown", Severity.ERROR, "There is no what-if edit {name!r}.", "The edits are {known:list}."
)
EDIT_BRACKET_MISSING = Template("edit-bracket-missing", Severity.ERROR, "It doesn't end with its bracket.")
EDIT_UNREADABLE = Template("edit-unreadable", Severity.ERROR, "It can't be read from {rest!r} on.")
EDIT_NEEDS_ARGUMENT = Template("edit-needs-argument", Severity.ERROR, "It needs {wanted}, and {given} were given.")
EDIT_ARGUMENT_UNKNOWN = Template("edit-argument-unknown", Severity.ERROR, "It doesn't take {argument!r}.")
EDIT_SELECTION_UNKNOWN = Template(
    "edit-selection-unknown",
    Severity.ERROR,
    "It doesn't take {argument!r}; kernels are named by key=pattern, such as family=gemm.",
)
NUMBER_INVALID = Template("number-invalid", Severity.ERROR, "{word!r} is no usable number.")
PATTERN_INVALID = Template("pattern-invalid", Severity.ERROR, "{pattern!r} is not a regular expression.")
SELECTION_KEY_UNKNOWN = Template(
    "selection-key-unknown",
    Severity.ERROR,
    "Kernels can't be selected by {key!r}.",
    "Use {known:list} or a column of the kernel table.",
)
SELECTION_EMPTY = Template("selection-empty", Severity.ERROR, "There are no {selection}.")
SELECTION_VALUE_UNKNOWN = Template(
    "selection-value-unknown",
    Severity.ERROR,
    "There are no {selection}.",
    "Most frequent values of {key} in the trace: {values:list}.",
)

FACTOR_OUT_OF_RANGE = Template(
    "factor-out-of-range",
    Severity.ERROR,
    "Kernels can't take {factor:g} times as long.",
    "Give a factor from 0 to {largest:g}.",
)
HOST_FRACTION_INVALID = Template(
    "host-fraction-invalid",
    Severity.ERROR,
    "The CPU's work can't fall to {fraction:g} of what it was.",
    "Give a fraction of 0 or more.",
)
HOST_SPEED_TOO_LOW = Template(
    "host-speed-too-low", Severity.ERROR, "The CPU's speed has to be positive.", "Give {least:g} or more."
)
LAUNCHES_NOT_FOUND = Template("launches-not-found", Severity.ERROR, "The trace has no launch of {selection}.")
LAUNCHES_NOT_ADJACENT = Template(
    "launches-not-adjacent",
    Severity.ERROR,
    "No two launches of {selection} follow each other without a wait in between.",
)
KERNELS_NOT_ADJACENT = Template(
    "kernels-not-adjacent", Severity.ERROR, "No two {selection} follow each other without a wait in between."
)
COLLECTIVES_NOT_FOUND = Template(
    "collectives-not-found", Severity.ERROR, "There is no collective among the {selection}."
)
COLLECTIVES_NOT_AWAITED = Template(
    "collectives-not-awaited", Severity.ERROR, "Nothing waits for a collective among the {selection}."
)
COLLECTIVES_ALONE = Template("collectives-alone", Severity.ERROR, "There is no other stream beside the collectives.")
COLLECTIVES_CONTRADICT_RANKS = Template(
    "collectives-contradict-ranks",
    Severity.ERROR,
    "Waiting for the collectives contradicts the order in which ranks meet.",
    "Take one rank.",
)
QUEUE_NEVER_FULL = Template("queue-never-full", Severity.ERROR, "No stream is given enough launches to fill its queue.")
PROFILER_WORK_NOT_RECORDED = Template(
    "profiler-work-not-recorded",
    Severity.ERROR,
    "The trace records no work of the profiler that held up a thread.",
    "Remove all that the profiler cost with {--unprofiled-step}.",
)
SYNCS_NOT_FOUND = Template("syncs-not-found", Severity.ERROR, "No call waits for the GPU.")
SYNCS_NOT_FOUND_WITHIN = Template(
    "syncs-not-found-within", Severity.ERROR, "No call within {call!r} waits for the GPU."
)
COPIES_DONT_BLOCK = Template(
    "copies-dont-block", Severity.ERROR, "None of the {selection} is a copy that holds up its call."
)
DATA_LOADER_NOT_FOUND = Template(
    "data-loader-not-found",
    Severity.ERROR,
    "The trace has no data loader.",
    "PyTorch marks its own as enumerate(DataLoader)#...",
)
RUN_EMPTY = Template("run-empty", Severity.ERROR, "Nothing is left of the run.", "Select fewer kernels.")

TABLES_CHANGED = Template(
    "tables-changed",
    Severity.NOTE,
    "embedding tables of {rows:,} rows, {width:,} wide: {kernels:count kernel} at {ratio:.3g} of the time",
)
TABLES_MISSING = Template(
    "tables-missing", Severity.ERROR, "The trace has no look-ups of known sizes in embedding tables."
)
TABLES_UPDATED_WHOLE = Template(
    "tables-updated-whole",
    Severity.ERROR,
    "An optimizer updates all rows of the tables, and the trace has no sizes of its lists.",
    "Describe the DLRM by a configuration.",
)
TABLES_FIXED_NUMBER = Template(
    "tables-fixed-number",
    Severity.ERROR,
    "A trace doesn't tell what {count:,} tables would change behind their look-ups.",
    "Leave out the number, or describe the DLRM by a configuration.",
)
TABLES_FIXED_WIDTH = Template(
    "tables-fixed-width",
    Severity.ERROR,
    "The trace's tables are {widths:list} wide, and it doesn't tell what a width of {asked:,} would change behind "
    "their look-ups.",
    "Give a width of theirs, or describe the DLRM by a configuration.",
)
TABLES_WITHOUT_GPU = Template(
    "tables-without-gpu", Severity.ERROR, "The trace doesn't name its GPU, whose law scales look-ups."
)
KERNELS_SCALED = Template("kernels-scaled", Severity.NOTE, "{kernels:count kernel} at {factor:g} of the measured time")
KERNELS_REMOVED = Template(
    "kernels-removed", Severity.NOTE, "{kernels:count kernel} and {launches:count launch} are left out"
)
KERNELS_FUSED = Template("kernels-fused", Severity.NOTE, "{kernels:,} kernels become {fused:,}")
LAUNCHES_GRAPHED = Template(
    "launches-graphed", Severity.NOTE, "{launches:count launch} become {graphs:,} of CUDA graphs"
)
HOST_WORK_COMPILED = Template(
    "host-work-compiled", Severity.NOTE, "the CPU's work before {launches:count launch} falls to {fraction:g} of it"
)
HOST_SPEED_CHANGED = Template("host-speed-changed", Severity.NOTE, "the CPU is {speed:g} times as fast")
HOST_SPEEDS_CHANGED = Template(
    "host-speeds-changed",
    Severity.NOTE,
    "the CPU: {python:g} times as fast in Python, {op:g} times in ops, {launch:g} times in launches",
)
SYNCS_REMOVED = Template("syncs-removed", Severity.NOTE, "no wait for the GPU in {calls:count call}")
PROFILER_WORK_REMOVED = Template(
    "profiler-work-removed", Severity.NOTE, "{removed_us} of the profiler's own work are gone"
)
COPIES_PINNED = Template("copies-pinned", Severity.NOTE, "{copies:,} copies don't hold up their call")
BATCHES_PREFETCHED = Template("batches-prefetched", Severity.NOTE, "{batches:count batch} without time to get")
QUEUE_UNLIMITED = Template(
    "queue-unlimited", Severity.NOTE, "the launch queue has room for {launches:count launch} that could have to wait"
)
COLLECTIVES_OVERLAPPED = Template(
    "collectives-overlapped",
    Severity.NOTE,
    "no wait for {collectives:count collective} in {kernels:count kernel}",
)
COLLECTIVES_SERIALIZED = Template(
    "collectives-serialized", Severity.NOTE, "the GPU to themselves for {collectives:count collective}"
)
COLLECTIVES_MOSTLY_SERIALIZED = Template(
    "collectives-mostly-serialized",
    Severity.NOTE,
    "the GPU to themselves for {collectives:count collective}, but for {left_out:,} of {waits:,} waits that contradict "
    "others",
)
