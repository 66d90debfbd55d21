"""What-if edits: what is wrong with one, and what each changed."""

from tracekit.messages.model import error, name_templates, note

EDIT_REFUSED = error("{--what-if} '{edit}': {error}")
EDIT_MALFORMED = error("{--what-if} '{edit}': {error}", "Write {usage}.")
HOST_SPEED_MALFORMED = error("{--host-speed} {speed}: {error}", "Write SPEED, or python=SPEED,op=SPEED,launch=SPEED.")
EDIT_UNKNOWN = error("There is no what-if edit {name!r}.", "The edits are {known:list}.")
EDIT_BRACKET_MISSING = error("It doesn't end with its bracket.")
EDIT_UNREADABLE = error("It can't be read from {rest!r} on.")
EDIT_NEEDS_ARGUMENT = error("It needs {wanted}, and {given} were given.")
EDIT_ARGUMENT_UNKNOWN = error("It doesn't take {argument!r}.")
EDIT_SELECTION_UNKNOWN = error("It doesn't take {argument!r}; kernels are named by key=pattern, such as family=gemm.")
NUMBER_INVALID = error("{word!r} is no usable number.")
PATTERN_INVALID = error("{pattern!r} is not a regular expression.")
SELECTION_KEY_UNKNOWN = error(
    "Kernels can't be selected by {key!r}.", "Use {known:list} or a column of the kernel table."
)
SELECTION_EMPTY = error("There are no {selection}.")
SELECTION_VALUE_UNKNOWN = error(
    "There are no {selection}.", "Most frequent values of {key} in the trace: {values:list}."
)

FACTOR_OUT_OF_RANGE = error("Kernels can't take {factor:g} times as long.", "Give a factor from 0 to {largest:g}.")
HOST_FRACTION_INVALID = error(
    "The CPU's work can't fall to {fraction:g} of what it was.", "Give a fraction of 0 or more."
)
HOST_SPEED_TOO_LOW = error("The CPU's speed has to be positive.", "Give {least:g} or more.")
LAUNCHES_NOT_FOUND = error("The trace has no launch of {selection}.")
LAUNCHES_NOT_ADJACENT = error("No two launches of {selection} follow each other without a wait in between.")
KERNELS_NOT_ADJACENT = error("No two {selection} follow each other without a wait in between.")
COLLECTIVES_NOT_FOUND = error("There is no collective among the {selection}.")
COLLECTIVES_NOT_AWAITED = error("Nothing waits for a collective among the {selection}.")
COLLECTIVES_ALONE = error("There is no other stream beside the collectives.")
COLLECTIVES_CONTRADICT_RANKS = error(
    "Waiting for the collectives contradicts the order in which ranks meet.", "Take one rank."
)
QUEUE_NEVER_FULL = error("No stream is given enough launches to fill its queue.")
PROFILER_WORK_NOT_RECORDED = error(
    "The trace records no work of the profiler that held up a thread.",
    "Remove all that the profiler cost with {--unprofiled-step}.",
)
SYNCS_NOT_FOUND = error("No call waits for the GPU.")
SYNCS_NOT_FOUND_WITHIN = error("No call within {call!r} waits for the GPU.")
COPIES_DONT_BLOCK = error("None of the {selection} is a copy that holds up its call.")
DATA_LOADER_NOT_FOUND = error("The trace has no data loader.", "PyTorch marks its own as enumerate(DataLoader)#...")
RUN_EMPTY = error("Nothing is left of the run.", "Select fewer kernels.")

TABLES_CHANGED = note(
    "embedding tables of {rows:,} rows, {width:,} wide: {kernels:count kernel} at {ratio:.3g} of the time"
)
TABLES_MISSING = error("The trace has no look-ups of known sizes in embedding tables.")
TABLES_UPDATED_WHOLE = error(
    "An optimizer updates all rows of the tables, and the trace has no sizes of its lists.",
    "Describe the DLRM by a configuration.",
)
TABLES_FIXED_NUMBER = error(
    "A trace doesn't tell what {count:,} tables would change behind their look-ups.",
    "Leave out the number, or describe the DLRM by a configuration.",
)
TABLES_FIXED_WIDTH = error(
    "The trace's tables are {widths:list} wide, and it doesn't tell what a width of {asked:,} would change behind "
    "their look-ups.",
    "Give a width of theirs, or describe the DLRM by a configuration.",
)
TABLES_WITHOUT_GPU = error("The trace doesn't name its GPU, whose law scales look-ups.")
KERNELS_SCALED = note("{kernels:count kernel} at {factor:g} of the measured time")
KERNELS_REMOVED = note("{kernels:count kernel} and {launches:count launch} are left out")
KERNELS_FUSED = note("{kernels:,} kernels become {fused:,}")
LAUNCHES_GRAPHED = note("{launches:count launch} become {graphs:,} of CUDA graphs")
HOST_WORK_COMPILED = note("the CPU's work before {launches:count launch} falls to {fraction:g} of it")
HOST_SPEED_CHANGED = note("the CPU is {speed:g} times as fast")
HOST_SPEEDS_CHANGED = note(
    "the CPU: {python:g} times as fast in Python, {op:g} times in ops, {launch:g} times in launches"
)
SYNCS_REMOVED = note("no wait for the GPU in {calls:count call}")
PROFILER_WORK_REMOVED = note("{removed_us} of the profiler's own work are gone")
COPIES_PINNED = note("{copies:,} copies don't hold up their call")
BATCHES_PREFETCHED = note("{batches:count batch} without time to get")
QUEUE_UNLIMITED = note("the launch queue has room for {launches:count launch} that could have to wait")
COLLECTIVES_OVERLAPPED = note("no wait for {collectives:count collective} in {kernels:count kernel}")
COLLECTIVES_SERIALIZED = note("the GPU to themselves for {collectives:count collective}")
COLLECTIVES_MOSTLY_SERIALIZED = note(
    "the GPU to themselves for {collectives:count collective}, but for {left_out:,} of {waits:,} waits that contradict "
    "others"
)

name_templates(globals())
