"""What a sweep over layouts says beside its table."""

from tracekit.messages.model import Severity, Template

BEST_LAYOUT = Template(
    "best-layout",
    Severity.NOTE,
    "Most is done by {ranks:count GPU} of {target} as {layout}: {speedup:range} times the traced job's throughput "
    "(most likely {speedup:likely}).",
)
CLUSTER_NUMBERED = Template("cluster-numbered", Severity.NOTE, "{number} is {cluster}")
RANKS_THAT_HELP = Template(
    "ranks-that-help",
    Severity.NOTE,
    "{cluster}: up to {ranks:count rank} each GPU keeps {kept_pct} of its throughput in the smallest layout",
)
TIED_LAYOUTS = Template(
    "tied-layouts",
    Severity.NOTE,
    "≈ gets as much done as the line above, within {tied_pct:g} %, so that their order says nothing",
)
TIED_LAYOUTS_BY_PRICE = Template(
    "tied-layouts-by-price",
    Severity.NOTE,
    "≈ gets as much done as the line above, within {tied_pct:g} %: cheaper ones come first",
)
STEPS_COUNTED = Template(
    "steps-counted",
    Severity.NOTE,
    "steps of a replica are counted, as the trace doesn't tell its batch: {--samples} N says a rank's",
)
UNFIT_LAYOUTS_LAST = Template("unfit-layouts-last", Severity.NOTE, "what doesn't fit into memory comes last")
LAYOUT_FIT_UNKNOWN = Template(
    "layout-fit-unknown", Severity.NOTE, "?: the trace doesn't tell whether it fits into memory"
)
DOLLAR_COLUMNS = Template(
    "dollar-columns",
    Severity.NOTE,
    "$/1k: dollars for 1,000 steps, of which larger layouts do more; $/1M: for a million {unit}",
)
