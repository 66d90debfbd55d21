"""What shows a finding: one row of its evidence."""

from tracekit.messages.model import Severity, Template

OP_LAUNCHED = Template("op-launched", Severity.NOTE, "{launches:mean} launches")
OP_LAUNCHED_AS = Template("op-launched-as", Severity.NOTE, "{launches:mean} launches, {kernel}")
GEMM_LAUNCHED = Template("gemm-launched", Severity.NOTE, "{launches:mean} launches, m {m}, n {n}, k {k}")
FEW_BLOCKS_LAUNCHED = Template(
    "few-blocks-launched", Severity.NOTE, "{launches:mean} launches, {blocks} blocks for {sms} SMs"
)
PART_WAVE_LAUNCHED = Template(
    "part-wave-launched", Severity.NOTE, "{launches:mean} launches, {waves:.1f} waves of blocks"
)
CHAIN_RAN = Template("chain-ran", Severity.NOTE, "{times:mean} times")
SPAN_RAN = Template("span-ran", Severity.NOTE, "{times:mean} times")
CALL_MADE = Template("call-made", Severity.NOTE, "{calls:mean} calls")
LAUNCH_LATE = Template("launch-late", Severity.NOTE, "the GPU waits for its launch")
WAIT_BEFORE_LAUNCH = Template("wait-before-launch", Severity.NOTE, "the GPU idles after a wait")
IDLE_BEFORE = Template("idle-before", Severity.NOTE, "the GPU is idle before it")
SHARE_OF_CRITICAL_PATH = Template(
    "share-of-critical-path", Severity.NOTE, "{path_pct} of the critical path, measured: {measured_pct}"
)
RANK_BUSY_AND_WAITING = Template("rank-busy-and-waiting", Severity.NOTE, "busy {busy_us}, waits {wait_us}")
