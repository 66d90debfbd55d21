"""What a sweep over layouts says beside its table."""

from tracekit.messages.model import name_templates, note

BEST_LAYOUT = note(
    "Most is done by {ranks:count GPU} of {target} as {layout}: {speedup:range} times the traced job's throughput "
    "(most likely {speedup:likely})."
)
CLUSTER_NUMBERED = note("{number} is {cluster}")
RANKS_THAT_HELP = note(
    "{cluster}: up to {ranks:count rank} each GPU keeps {kept_pct} of its throughput in the smallest layout"
)
TIED_LAYOUTS = note("≈ gets as much done as the line above, within {tied_pct:g} %, so that their order says nothing")
TIED_LAYOUTS_BY_PRICE = note("≈ gets as much done as the line above, within {tied_pct:g} %: cheaper ones come first")
STEPS_COUNTED = note("steps of a replica are counted, as the trace doesn't tell its batch: {--samples} N says a rank's")
UNFIT_LAYOUTS_LAST = note("what doesn't fit into memory comes last")
LAYOUT_FIT_UNKNOWN = note("?: the trace doesn't tell whether it fits into memory")
DOLLAR_COLUMNS = note("$/1k: dollars for 1,000 steps, of which larger layouts do more; $/1M: for a million {unit}")

name_templates(globals())
