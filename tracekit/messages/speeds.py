"""What a faster GPU, CPU or network would give."""

from tracekit.messages.model import name_templates, note

GPU_FASTER = note("GPU {steps:list}, never below {floor_us}; {limit}")
CPU_FASTER = note("CPU {steps:list}, never below {floor_us}; {limit}")
NETWORK_FASTER = note("network {steps:list}, never below {floor_us}")
STEP_AT_SPEED = note("{speed:g}x {step_us}")
LIMIT_FROM_SPEED = note("from {speed:.2g}x on the {resource} is the limit")
LIMIT_ALREADY = note("the {resource} is the limit already")
STAYS_AT_ANY_SPEED = note(
    "whatever their speed, {kept_us} stay, {kept_pct} of the step: latencies, and waits and gaps that the trace "
    "doesn't explain"
)
LIMIT_KEPT = note("most of that stays as measured, it isn't the {resource}'s")
LIMIT_NEVER = note("the {resource} doesn't become the limit")

name_templates(globals())
