"""Why a GPU was idle."""

from tracekit.messages.model import Severity, Template

IDLE_LAUNCH_BOUND = Template("idle-launch-bound", Severity.NOTE, "the CPU was still working towards the next launch")
IDLE_SYNC_BOUND = Template(
    "idle-sync-bound", Severity.NOTE, "the CPU had waited for the GPU before it went on to the next launch"
)
IDLE_ALLOCATOR = Template(
    "idle-allocator",
    Severity.NOTE,
    "the CPU got or freed memory (cudaMalloc, cudaFree, cudaHostAlloc, ...) before the next launch",
)
IDLE_DATA_LOADING = Template("idle-data-loading", Severity.NOTE, "the CPU waited for the next batch of the data loader")
IDLE_DEPENDENCY = Template("idle-dependency", Severity.NOTE, "the next kernel waited for an event of another stream")
IDLE_WAITS_FOR_COMPUTE = Template(
    "idle-waits-for-compute", Severity.NOTE, "the stream's next kernel waited for a kernel of another stream"
)
IDLE_WAITS_FOR_COPY = Template(
    "idle-waits-for-copy", Severity.NOTE, "the stream's next kernel waited for a copy of another stream"
)
IDLE_WAITS_FOR_COMMUNICATION = Template(
    "idle-waits-for-communication",
    Severity.NOTE,
    "the stream's next kernel waited for a collective of another stream",
)
IDLE_RENDEZVOUS = Template(
    "idle-rendezvous", Severity.NOTE, "a collective waited for other ranks, and nothing else ran"
)
IDLE_LAUNCH_LATENCY = Template("idle-launch-latency", Severity.NOTE, "from the launch call to the start of its kernel")
IDLE_KERNEL_GAP = Template("idle-kernel-gap", Severity.NOTE, "between two kernels that were both in the queue")
IDLE_IN_GRAPH = Template(
    "idle-in-graph",
    Severity.NOTE,
    "within a CUDA graph: work or waits that come back in every replay but are not recorded",
)
IDLE_NOTHING_LAUNCHED = Template("idle-nothing-launched", Severity.NOTE, "nothing more was launched on the stream")
IDLE_NOTHING_RECORDED = Template(
    "idle-nothing-recorded", Severity.NOTE, "nothing in the trace says what the next kernel waited for"
)
IDLE_UNRECORDED_WORK = Template(
    "idle-unrecorded-work", Severity.NOTE, "the CPU waited for work of the GPU that isn't in the trace"
)
