"""The answer that a prediction was asked for: how fast, at what cost, and whether it pays."""

from tracekit.messages.model import name_templates, note

TARGET_DECIDED = note("{target:words}: {answers:sentences}")
"""The first of the answers is the speed."""

LAYOUT_THERE = note("as {layout}")
BATCH_THERE = note("with {batch_ratio:g} times the batch, per sample")
BATCH_OF_PROGRAM = note("with {batch_ratio:g} times the program's batch")
EDITS_THERE = note("with the what-if edits")

SPEED_HIGHER = note("{speedup:range} times as fast (most likely {speedup:likely}).")
SPEED_MAYBE_HIGHER = note("{speedup:range} times as fast (most likely {speedup:likely}), so that it may be no faster.")
SPEED_LEVEL = note("about as fast ({speedup:range} times).")
SPEED_AS_MEASURED = note("as fast as measured.")
SPEED_MAYBE_LOWER = note(
    "takes {slowdown:range} times as long (most likely {slowdown:likely}), so that it may be no slower."
)
SPEED_LOWER = note("takes {slowdown:range} times as long (most likely {slowdown:likely}).")
SPEED_WITH_SAME_CPU = note("With a CPU like the trace's: {speedup:range} times.")
STEP_OF_CAPTURE = note("a step takes {step_us} ({ends_us:interval}).")

COSTS_MORE = note(
    "At {price:price} an hour it costs {more_pct:likely} % more per {unit} ({more_pct:range} %) than {here} at "
    "{here_price:price}; it pays below {break_even:dollars} ({break_even:dollar_range})."
)
COSTS_LESS = note(
    "At {price:price} an hour it costs {less_pct:likely} % less per {unit} ({less_pct:range} %) than {here} at "
    "{here_price:price}; it pays below {break_even:dollars} ({break_even:dollar_range})."
)
COSTS_UNDECIDED = note(
    "At {price:price} an hour it may cost more or less per {unit} than {here} at {here_price:price}: it pays below "
    "{break_even:dollars} ({break_even:dollar_range})."
)
PAYS_BELOW = note(
    "It pays below {break_even:dollars} an hour ({break_even:dollar_range}), against {here} at {here_price:price}."
)
COSTS_ALONE = note("At {price:price} an hour, {amount:,} {units} cost {dollars:dollars} ({dollars:dollar_range}).")
COSTS_TIMES = note(
    "At {price:price} an hour it costs {ratio:likely} times as much per {unit} ({ratio:range}) as {here} at "
    "{here_price:price}; it pays below {break_even:dollars} ({break_even:dollar_range})."
)
RENTED_WHOLE = note(
    "It is rented whole, for {hourly:price} an hour: dollars count its {rented:count GPU}; the job uses {used}."
)
RENTED_GPUS = note("Its {rented:count GPU} cost {hourly:price} an hour.")
RUN_TAKES = note("{amount:amount} {units} take {hours:run_time} there, {here_hours:run_time} here.")
RUN_TAKES_THERE = note("{amount:amount} {units} take {hours:run_time}.")
RUN_COSTS = note("That costs {dollars:dollars} ({dollars:dollar_range}) there, {here_dollars:price} here.")
RUN_COSTS_THERE = note("That costs {dollars:dollars} ({dollars:dollar_range}).")
LACKS_MEMORY = note("The job doesn't fit into its memory.")
MAY_LACK_MEMORY = note("Whether the job fits into its memory isn't known.")

FIRST_BY_TIME = note("It is the fastest of {targets}.")
LEVEL_BY_TIME = note(
    "Which of {targets} targets is the fastest is open: by the intervals it may be {others:list} as well."
)
FIRST_BY_DOLLARS = note("It is the cheapest of {targets}.")
LEVEL_BY_DOLLARS = note(
    "Which of {targets} targets is the cheapest is open: by the intervals it may be {others:list} as well."
)
FIRST_BY_ENERGY = note("It takes the least energy of {targets}.")
LEVEL_BY_ENERGY = note(
    "Which of {targets} targets takes the least energy is open: by the intervals it may be {others:list} as well."
)
CHEAPEST = note("Cheapest of the {places} with a price is {place}.")
CHEAPEST_OPEN = note("Which is the cheapest is open: by the intervals it may be {places:list}.")
MORE_TARGETS = note("and {targets} more")
PRICES_DATED = note("Prices are of {date}.")

name_templates(globals())
