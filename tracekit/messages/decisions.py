"""The answer that a prediction was asked for: how fast, at what cost, and whether it pays."""

from tracekit.messages.model import Severity, Template

TARGET_DECIDED = Template("target-decided", Severity.NOTE, "{target:words}: {answers:sentences}")
"""The first of the answers is the speed."""

LAYOUT_THERE = Template("layout-there", Severity.NOTE, "as {layout}")
BATCH_THERE = Template("batch-there", Severity.NOTE, "with {batch_ratio:g} times the batch, per sample")
EDITS_THERE = Template("edits-there", Severity.NOTE, "with the what-if edits")

SPEED_HIGHER = Template("speed-higher", Severity.NOTE, "{speedup:range} times as fast (most likely {speedup:likely}).")
SPEED_MAYBE_HIGHER = Template(
    "speed-maybe-higher",
    Severity.NOTE,
    "{speedup:range} times as fast (most likely {speedup:likely}), so that it may be no faster.",
)
SPEED_LEVEL = Template("speed-level", Severity.NOTE, "about as fast ({speedup:range} times).")
SPEED_AS_MEASURED = Template("speed-as-measured", Severity.NOTE, "as fast as measured.")
SPEED_MAYBE_LOWER = Template(
    "speed-maybe-lower",
    Severity.NOTE,
    "takes {slowdown:range} times as long (most likely {slowdown:likely}), so that it may be no slower.",
)
SPEED_LOWER = Template(
    "speed-lower", Severity.NOTE, "takes {slowdown:range} times as long (most likely {slowdown:likely})."
)
STEP_OF_CAPTURE = Template("step-of-capture", Severity.NOTE, "a step takes {step_us} ({ends_us:interval}).")

COSTS_MORE = Template(
    "costs-more",
    Severity.NOTE,
    "At {price:price} an hour it costs {more_pct:likely} % more per {unit} ({more_pct:range} %) than {here} at "
    "{here_price:price}; it pays below {break_even:dollars} ({break_even:dollar_range}).",
)
COSTS_LESS = Template(
    "costs-less",
    Severity.NOTE,
    "At {price:price} an hour it costs {less_pct:likely} % less per {unit} ({less_pct:range} %) than {here} at "
    "{here_price:price}; it pays below {break_even:dollars} ({break_even:dollar_range}).",
)
COSTS_UNDECIDED = Template(
    "costs-undecided",
    Severity.NOTE,
    "At {price:price} an hour it may cost more or less per {unit} than {here} at {here_price:price}: it pays below "
    "{break_even:dollars} ({break_even:dollar_range}).",
)
PAYS_BELOW = Template(
    "pays-below",
    Severity.NOTE,
    "It pays below {break_even:dollars} an hour ({break_even:dollar_range}), against {here} at {here_price:price}.",
)
COSTS_ALONE = Template(
    "costs-alone",
    Severity.NOTE,
    "At {price:price} an hour, {amount:,} {units} cost {dollars:dollars} ({dollars:dollar_range}).",
)
LACKS_MEMORY = Template("lacks-memory", Severity.NOTE, "The job doesn't fit into its memory.")
MAY_LACK_MEMORY = Template("may-lack-memory", Severity.NOTE, "Whether the job fits into its memory isn't known.")

FIRST_BY_TIME = Template("first-by-time", Severity.NOTE, "It is the fastest of {targets}.")
LEVEL_BY_TIME = Template(
    "level-by-time", Severity.NOTE, "Of {targets} targets, {others:list} may be as fast: the intervals don't tell."
)
MORE_TARGETS = Template("more-targets", Severity.NOTE, "{targets} more")
