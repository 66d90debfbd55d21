"""What shows a finding: one row of its evidence."""

from tracekit.messages.model import Severity, Template

OP_LAUNCHED = Template("op-launched", Severity.NOTE, "{launches:mean launch}")
OP_LAUNCHED_AS = Template("op-launched-as", Severity.NOTE, "{launches:mean launch}, {kernel}")
GEMM_LAUNCHED = Template("gemm-launched", Severity.NOTE, "{launches:mean launch}, m {m}, n {n}, k {k}")
FEW_BLOCKS_LAUNCHED = Template(
    "few-blocks-launched", Severity.NOTE, "{launches:mean launch}, {blocks} blocks for {sms} SMs"
)
PART_WAVE_LAUNCHED = Template(
    "part-wave-launched", Severity.NOTE, "{launches:mean launch}, {waves:.1f} waves of blocks"
)
CHAIN_RAN = Template("chain-ran", Severity.NOTE, "{times:mean time}")
SPAN_RAN = Template("span-ran", Severity.NOTE, "{times:mean time}")
CALL_MADE = Template("call-made", Severity.NOTE, "{calls:mean call}")
LAUNCH_LATE = Template("launch-late", Severity.NOTE, "the GPU waits for its launch")
WAIT_BEFORE_LAUNCH = Template("wait-before-launch", Severity.NOTE, "the GPU idles after a wait")
IDLE_BEFORE = Template("idle-before", Severity.NOTE, "the GPU is idle before it")
SHARE_OF_CRITICAL_PATH = Template(
    "share-of-critical-path", Severity.NOTE, "{path_pct} of the critical path{measured_pct:aside}"
)
RANK_BUSY_AND_WAITING = Template("rank-busy-and-waiting", Severity.NOTE, "busy {busy_us}, waits {wait_us}")
