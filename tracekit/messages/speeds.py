"""What a faster GPU, CPU or network would give."""

from tracekit.messages.model import Severity, Template

GPU_FASTER = Template("gpu-faster", Severity.NOTE, "GPU {steps:list}, never below {floor_us}; {limit}")
CPU_FASTER = Template("cpu-faster", Severity.NOTE, "CPU {steps:list}, never below {floor_us}; {limit}")
NETWORK_FASTER = Template("network-faster", Severity.NOTE, "network {steps:list}, never below {floor_us}")
STEP_AT_SPEED = Template("step-at-speed", Severity.NOTE, "{speed:g}x {step_us}")
LIMIT_FROM_SPEED = Template("limit-from-speed", Severity.NOTE, "from {speed:.2g}x on the {resource} is the limit")
LIMIT_ALREADY = Template("limit-already", Severity.NOTE, "the {resource} is the limit already")
STAYS_AT_ANY_SPEED = Template(
    "stays-at-any-speed",
    Severity.NOTE,
    "whatever their speed, {kept_us} stay, {kept_pct} of the step: latencies, and waits and gaps that the trace "
    "doesn't explain",
)
LIMIT_KEPT = Template("limit-kept", Severity.NOTE, "most of that stays as measured, it isn't the {resource}'s")
LIMIT_NEVER = Template("limit-never", Severity.NOTE, "the {resource} doesn't become the limit")
