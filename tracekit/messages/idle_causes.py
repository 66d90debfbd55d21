"""Why a GPU was idle."""

from tracekit.messages.model import name_templates, note

IDLE_LAUNCH_BOUND = note("the CPU was still working towards the next launch")
IDLE_SYNC_BOUND = note("the CPU had waited for the GPU before it went on to the next launch")
IDLE_ALLOCATOR = note("the CPU got or freed memory (cudaMalloc, cudaFree, cudaHostAlloc, ...) before the next launch")
IDLE_DATA_LOADING = note("the CPU waited for the next batch of the data loader")
IDLE_DEPENDENCY = note("the next kernel waited for an event of another stream")
IDLE_WAITS_FOR_COMPUTE = note("the stream's next kernel waited for a kernel of another stream")
IDLE_WAITS_FOR_COPY = note("the stream's next kernel waited for a copy of another stream")
IDLE_WAITS_FOR_COMMUNICATION = note("the stream's next kernel waited for a collective of another stream")
IDLE_RENDEZVOUS = note("a collective waited for other ranks, and nothing else ran")
IDLE_LAUNCH_LATENCY = note("from the launch call to the start of its kernel")
IDLE_KERNEL_GAP = note("between two kernels that were both in the queue")
IDLE_IN_GRAPH = note("within a CUDA graph: work or waits that come back in every replay but are not recorded")
IDLE_NOTHING_LAUNCHED = note("nothing more was launched on the stream")
IDLE_NOTHING_RECORDED = note("nothing in the trace says what the next kernel waited for")
IDLE_UNRECORDED_WORK = note("the CPU waited for work of the GPU that isn't in the trace")

name_templates(globals())
