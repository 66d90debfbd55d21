"""What shows a finding: one row of its evidence."""

from tracekit.messages.model import name_templates, note

OP_LAUNCHED = note("{launches:mean launch}")
OP_LAUNCHED_AS = note("{launches:mean launch}, {kernel}")
GEMM_LAUNCHED = note("{launches:mean launch}, m {m}, n {n}, k {k}")
FEW_BLOCKS_LAUNCHED = note("{launches:mean launch}, {blocks} blocks for {sms} SMs")
PART_WAVE_LAUNCHED = note("{launches:mean launch}, {waves:.1f} waves of blocks")
CHAIN_RAN = note("{times:mean time}")
SPAN_RAN = note("{times:mean time}")
CALL_MADE = note("{calls:mean call}")
LAUNCH_LATE = note("the GPU waits for its launch")
WAIT_BEFORE_LAUNCH = note("the GPU idles after a wait")
IDLE_BEFORE = note("the GPU is idle before it")
SHARE_OF_CRITICAL_PATH = note("{path_pct} of the critical path{measured_pct:aside}")
RANK_BUSY_AND_WAITING = note("busy {busy_us}, waits {wait_us}")

name_templates(globals())
