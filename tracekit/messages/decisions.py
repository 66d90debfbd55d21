"""The answer that a prediction was asked for: how fast, at what cost, and whether it pays."""

from tracekit.messages.model import Severity, Template

TARGET_DECIDED = Template("target-decided", Severity.NOTE, "{target:words}: {answers:sentences}")
"""The first of the answers is the speed."""

LAYOUT_THERE = Template("layout-there", Severity.NOTE, "as {layout}")
BATCH_THERE = Template("batch-there", Severity.NOTE, "with {batch_ratio:g} times the batch, per sample")
BATCH_OF_PROGRAM = Template("batch-of-program", Severity.NOTE, "with {batch_ratio:g} times the program's batch")
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
SPEED_WITH_SAME_CPU = Template(
    "speed-with-same-cpu", Severity.NOTE, "With a CPU like the trace's: {speedup:range} times."
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
COSTS_TIMES = Template(
    "costs-times",
    Severity.NOTE,
    "At {price:price} an hour it costs {ratio:likely} times as much per {unit} ({ratio:range}) as {here} at "
    "{here_price:price}; it pays below {break_even:dollars} ({break_even:dollar_range}).",
)
RENTED_WHOLE = Template(
    "rented-whole",
    Severity.NOTE,
    "It is rented whole, for {hourly:price} an hour: dollars count its {rented:count GPU}; the job uses {used}.",
)
RENTED_GPUS = Template("rented-gpus", Severity.NOTE, "Its {rented:count GPU} cost {hourly:price} an hour.")
RUN_TAKES = Template(
    "run-takes",
    Severity.NOTE,
    "{amount:amount} {units} take {hours:run_time} there, {here_hours:run_time} here.",
)
RUN_TAKES_THERE = Template("run-takes-there", Severity.NOTE, "{amount:amount} {units} take {hours:run_time}.")
RUN_COSTS = Template(
    "run-costs",
    Severity.NOTE,
    "That costs {dollars:dollars} ({dollars:dollar_range}) there, {here_dollars:price} here.",
)
RUN_COSTS_THERE = Template("run-costs-there", Severity.NOTE, "That costs {dollars:dollars} ({dollars:dollar_range}).")
LACKS_MEMORY = Template("lacks-memory", Severity.NOTE, "The job doesn't fit into its memory.")
MAY_LACK_MEMORY = Template("may-lack-memory", Severity.NOTE, "Whether the job fits into its memory isn't known.")

FIRST_BY_TIME = Template("first-by-time", Severity.NOTE, "It is the fastest of {targets}.")
LEVEL_BY_TIME = Template(
    "level-by-time",
    Severity.NOTE,
    "Which of {targets} targets is the fastest is open: by the intervals it may be {others:list} as well.",
)
FIRST_BY_DOLLARS = Template("first-by-dollars", Severity.NOTE, "It is the cheapest of {targets}.")
LEVEL_BY_DOLLARS = Template(
    "level-by-dollars",
    Severity.NOTE,
    "Which of {targets} targets is the cheapest is open: by the intervals it may be {others:list} as well.",
)
FIRST_BY_ENERGY = Template("first-by-energy", Severity.NOTE, "It takes the least energy of {targets}.")
LEVEL_BY_ENERGY = Template(
    "level-by-energy",
    Severity.NOTE,
    "Which of {targets} targets takes the least energy is open: by the intervals it may be {others:list} as well.",
)
CHEAPEST = Template("cheapest", Severity.NOTE, "Cheapest of the {places} with a price is {place}.")
CHEAPEST_OPEN = Template(
    "cheapest-open", Severity.NOTE, "Which is the cheapest is open: by the intervals it may be {places:list}."
)
MORE_TARGETS = Template("more-targets", Severity.NOTE, "and {targets} more")
PRICES_DATED = Template("prices-dated", Severity.NOTE, "Prices are of {date}.")
