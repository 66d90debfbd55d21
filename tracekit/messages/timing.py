"""Recorded times that break physics."""

from tracekit.messages.model import name_templates, warning

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

name_templates(globals())
