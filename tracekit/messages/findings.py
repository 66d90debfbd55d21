"""Findings: what limits the step."""

from tracekit.messages.model import finding, name_templates, note

CUDA_GRAPHS = note("CUDA graphs")
MORE_CUDA_GRAPHS = note("CUDA graphs around the other launches too")
TORCH_COMPILE = note("torch.compile")
LARGER_BATCH = note("a larger batch")
CHANNELS_LAST = note("channels_last, which needs no conversion of layouts")
HALF_PRECISION = note("half precision")
OTHER_LIBRARY = note("another version of the library")
FEWER_WAITS = note("fewer synchronisations")

LAUNCH_BOUND = finding(
    "The CPU sets a floor of {floor_us}, {floor_pct} of the step, whatever the GPU.",
    "Try {remedies:list}. The saving is that of CUDA graphs.",
)
LAUNCH_BOUND_PARTLY = finding(
    "The CPU sets a floor of {floor_us}, {floor_pct} of the step, whatever the GPU; {kept_us} of it would stay with "
    "any CPU.",
    "Try {remedies:list}. The saving is that of CUDA graphs.",
)
SYNCHRONISATION = finding(
    "The CPU waits for the GPU instead of launching ahead; {idle_us} of idle GPU a step follow.",
    "Wait rarely or later: .item(), nonzero, masks as indices, .cpu(), prints and unpinned copies all wait.",
)
DATA_LOADING_BY_WORKERS = finding(
    "Waiting for the data loader takes {loading_us} of a step: its workers don't keep up.",
    "Give it more of them (num_workers) or a larger prefetch_factor, or make preprocessing cheaper.",
)
DATA_LOADING = finding(
    "Waiting for the data loader takes {loading_us} of a step.",
    "Use DataLoader(num_workers=..., prefetch_factor=..., persistent_workers=True), or preprocess on the GPU.",
)
ALLOCATOR = finding(
    "Allocating and freeing GPU memory takes {calls_us} of a step.",
    "Keep shapes the same, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and don't call "
    "torch.cuda.empty_cache().",
)
ALLOCATOR_EXPANDABLE = finding(
    "Allocating and freeing GPU memory takes {calls_us} of a step, though its segments are expandable.",
    "Keep shapes the same, and don't call torch.cuda.empty_cache().",
)
EXPOSED_COMMUNICATION = finding(
    "Collectives run alone for {exposed_us}, {exposed_pct} of the step.",
    "Overlap them with compute (bucket sizes, prefetch), or look for a rank that comes late.",
)
EXPOSED_COMMUNICATION_BEHIND_CPU = finding(
    "Collectives run alone for {exposed_us}, {exposed_pct} of the step, which would be as long without them: the CPU "
    "is the limit.",
    "Shorten the CPU's work first.",
)
EXPOSED_COMMUNICATION_BEHIND_OTHERS = finding(
    "Collectives run alone for {exposed_us}, {exposed_pct} of the step, which would be as long without them.",
    "Look at the critical path: other work is the limit first.",
)
STRAGGLER = finding(
    "The others wait for rank {rank}: it comes last to {last_pct} of its collectives.",
    "Look at what it does more: data loading, logging, uneven shards or experts, a slower GPU or CPU.",
)
SMALL_COLLECTIVES = finding(
    "{collectives:mean} collectives of less than 1 MiB take {collectives_us} of a step.",
    "Send them together: larger buckets (bucket_cap_mb), coalesced calls, flattened parameters.",
)
FULL_PRECISION = finding(
    "GEMMs take {gemms_us} of a step in fp32, without tensor cores.",
    'Run them in TF32 with torch.set_float32_matmul_precision("high"); autocast to bf16 is faster still.',
)
FULL_PRECISION_WITHOUT_TF32 = finding(
    "GEMMs take {gemms_us} of a step in fp32, without tensor cores.",
    "Run them in half precision: torch.autocast with a GradScaler.",
)
TENSOR_CORES_UNUSED = finding(
    "Half-precision GEMMs take {gemms_us} of a step without tensor cores.",
    "Give them contiguous, 16-byte aligned inputs; look whether another backend (cuBLASLt) has a kernel.",
)
MISALIGNED_SHAPES = finding(
    "GEMMs with n or k not a multiple of {alignment} take {gemms_us} of a step.",
    "Pad these dimensions (vocabulary, classes, channels, sequence) to multiples of {alignment}, better 64.",
)
LOW_UTILIZATION = finding(
    "GEMMs and convolutions of {kernels_us} per step reach only {reached_pct} of what the GPU allows.",
    "They are too small or too thin to fill it: try a larger batch, batched or grouped GEMMs, other layouts.",
)
LOW_UTILIZATION_OF_MANY_BLOCKS = finding(
    "GEMMs and convolutions of {kernels_us} per step reach only {reached_pct} of what the GPU allows.",
    "They are large enough to fill it: try {remedies:list}.",
)
UNFUSED_ATTENTION = finding(
    "Attention takes {kernels_us} of a step as separate GEMMs and softmaxes.",
    "Use torch.nn.functional.scaled_dot_product_attention (FlashAttention), which never writes the scores to memory.",
)
OLDER_ATTENTION = finding(
    "FlashAttention 2 takes {kernels_us} of a step. It is written for an A100 and reaches at most {rate_pct} of what "
    "this GPU's tensor cores can do.",
    "Use torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION), or FlashAttention 3 (Hopper) or 4 (Blackwell).",
)
UNFUSED_CHAINS = finding(
    "{kernels:mean} memory-bound kernels follow each other in chains, {kernels_us} of a step.",
    "Fuse them with torch.compile, or by hand: fused layers (norm with residual, bias with activation).",
)
UNFUSED_CHAINS_OF_COMPILED = finding(
    "{kernels:mean} memory-bound kernels follow each other in chains, {kernels_us} of a step, although torch.compile "
    "is in use.",
    'Find what it leaves out (TORCH_LOGS="graph_breaks"), or fuse them by hand: fused layers (norm with residual).',
)
UNFUSED_OPTIMIZER = finding(
    "The optimizer takes {kernels_us} of a step in {kernels:mean kernel}.",
    "Use torch.optim.AdamW(..., fused=True), which reads and writes each parameter's state once.",
)
PAGEABLE_COPIES = finding(
    "Copies of pageable memory take {copies_us} of a step.",
    "Pin the host memory (DataLoader(pin_memory=True), Tensor.pin_memory) and copy with non_blocking=True.",
)
CPU_IS_BOTTLENECK = finding(
    "On {targets:list} the CPU sets the pace: {shares_pct:percents} of the critical path{measured_pct:aside}.",
    "A faster GPU won't help there: try {remedies:list}.",
)
CPU_OR_GPU_IS_BOTTLENECK = finding(
    "On {targets:list} the CPU most likely sets the pace, {shares_pct:percents} of the critical path"
    "{measured_pct:aside}; beside a fast one kernels do.",
    "A faster GPU helps beside a fast CPU only: try {remedies:list}.",
)
LATENCY_OR_GPU_IS_BOTTLENECK = finding(
    "On {targets:list} latencies of launches and waits most likely set the pace, {shares_pct:percents} of the critical "
    "path{measured_pct:aside}; beside a fast CPU kernels do.",
    "A faster GPU helps beside a fast CPU only: try {remedies:list}.",
)
GPU_OR_CPU_IS_BOTTLENECK = finding(
    "On {targets:list} kernels most likely set the pace, {shares_pct:percents} of the critical path"
    "{measured_pct:aside}; beside a slow CPU that does.",
    "A faster GPU, or less work, shortens it beside a fast CPU.",
)
COMMUNICATION_IS_BOTTLENECK = finding(
    "On {targets:list} communication sets the pace: {shares_pct:percents} of the critical path{measured_pct:aside}.",
    "Faster links would help more than a faster GPU.",
)
GPU_IS_BOTTLENECK = finding(
    "On {targets:list} kernels set the pace: {shares_pct:percents} of the critical path{measured_pct:aside}.",
    "A faster GPU, or less work, shortens it.",
)
LATENCY_IS_BOTTLENECK = finding(
    "On {targets:list} latencies of launches and waits set the pace: {shares_pct:percents} of the critical path"
    "{measured_pct:aside}.",
    "A faster GPU won't help there: try {remedies:list}.",
)
UNEXPLAINED_IS_BOTTLENECK = finding(
    "On {targets:list} time that nothing recorded explains sets the pace: {shares_pct:percents} of the critical path"
    "{measured_pct:aside}. It is kept as measured.",
    "`tracekit doctor` says what to record, so that it is explained.",
)
MEMORY_HEADROOM = finding(
    "The job needs at most {max_bytes} of {gpu_bytes} of memory.",
    "Try a larger batch, which makes larger kernels ({--batch} 2).",
)
MEMORY_HEADROOM_CHECKPOINTED = finding(
    "The job needs at most {max_bytes} of {gpu_bytes} of memory, and recomputes activations to save some.",
    "Leave activation checkpointing out, or try a larger batch, which makes larger kernels ({--batch} 2).",
)
DOES_NOT_FIT = finding(
    "The job doesn't fit into the memory of {target}: {reason}.",
    "Shard it over more ranks (FSDP, ZeRO), offload, or take a smaller optimizer state.",
)
GRAPH_BREAKS = finding(
    "A step runs {regions:mean} compiled regions: its graph is broken between them.",
    'Find out why with TORCH_LOGS="graph_breaks"; torch.compile(fullgraph=True) makes breaks an error.',
)
WARM_UP = finding(
    "Step {step} takes {step_us}, the others {median_us}: it is still warming up.",
    "Measure later ones with {--steps} {first}:{last}, or record with schedule(warmup=...).",
)
FASTER_THAN_BOUND = finding(
    "{kernels:count kernel} ({time_pct:.1f} % of kernel time: {families:list}) run faster than their bound.",
    "They read from the L2 cache, or tracekit overestimates their work; their times are kept as measured.",
)

LARGEST_KERNELS = finding(
    "The largest part of the step are {family} kernels: {time_us}, {step_pct} of it, at {reached_pct} of the roofline.",
    "Kernels with a low % of the roofline have most to gain: other shapes, formats or libraries.",
)
LARGEST_KERNELS_AT_LIMIT = finding(
    "The largest part of the step are {family} kernels: {time_us}, {step_pct} of it, at {reached_pct} of the roofline.",
    "They are near what this GPU can do: less work, shorter formats or a faster GPU make them shorter.",
)
LARGEST_KERNELS_UNKNOWN = finding(
    "The largest part of the step are {family} kernels: {time_us}, {step_pct} of it. Most of their work isn't known.",
    "`tracekit doctor` says what to record, so that it is.",
)
LARGEST_COLLECTIVES = finding(
    "The largest part of the step are collectives: {time_us}, {step_pct} of it.",
    "Faster links, or fewer and smaller messages, make them shorter.",
)
LARGEST_COLLECTIVES_HIDDEN = finding(
    "The largest part of the step are collectives: {time_us}, {step_pct} of it. Other work hides most of that.",
    "Look at the critical path first: without collectives the step would hardly be shorter.",
)
LARGEST_IDLE_OF_CPU = finding(
    "For the largest part of the step, {time_us} or {step_pct} of it, the GPU is idle: {cause}.", "Try {remedies:list}."
)
LARGEST_IDLE_OF_LATENCY = finding(
    "For the largest part of the step, {time_us} or {step_pct} of it, the GPU is idle: {cause}.",
    "Fewer and larger kernels have fewer of these gaps: try {remedies:list}.",
)
LARGEST_WAITING = finding(
    "For the largest part of the step, {time_us} or {step_pct} of it, the GPU is idle: {cause}.",
    "Give the traces of all ranks: they show which one comes late, and why.",
)
LARGEST_WAITING_OF_ALL = finding(
    "For the largest part of the step, {time_us} or {step_pct} of it, the GPU is idle: {cause}.",
    "Ranks come late by turns: look for work that differs between them and from step to step.",
)
LARGEST_IDLE_IN_GRAPH = finding(
    "For the largest part of the step, {time_us} or {step_pct} of it, the GPU is idle within CUDA graphs, and what "
    "runs or waits there isn't recorded.",
    "Record some steps without graphs (enforce_eager, --disable-cuda-graph, or torch.compile without its mode "
    '"reduce-overhead"): they show it.',
)
LARGEST_UNRECORDED_WORK = finding(
    "For the largest part of the step, {time_us} or {step_pct} of it, the GPU runs something that isn't in the trace: "
    "waits of the CPU last that much longer than all recorded work.",
    "`tracekit doctor` says what to record, so that it is there.",
)
LARGEST_IDLE_UNEXPLAINED = finding(
    "For the largest part of the step, {time_us} or {step_pct} of it, the GPU is idle: {cause}.",
    "`tracekit doctor` says what to record, so that it is explained.",
)

CPU_LIMITS_SWEEP = finding(
    "On {clusters:list} the CPU sets the pace in the layout that gets most done: {shares_pct:percents} of the critical "
    "path.",
    "A faster GPU won't help there: try fewer launches, CUDA graphs, torch.compile.",
)
COMMUNICATION_LIMITS_SWEEP = finding(
    "On {clusters:list} communication sets the pace in the layout that gets most done: {shares_pct:percents} of the "
    "critical path.",
    "Faster links would help more than a faster GPU.",
)
GPU_LIMITS_SWEEP = finding(
    "On {clusters:list} kernels set the pace in the layout that gets most done: {shares_pct:percents} of the critical "
    "path.",
    "A faster GPU, or less work, shortens it.",
)
LATENCY_LIMITS_SWEEP = finding(
    "On {clusters:list} latencies of launches and waits set the pace in the layout that gets most done: "
    "{shares_pct:percents} of the critical path.",
    "A faster GPU won't help there: try fewer and larger kernels.",
)
CPU_OR_GPU_LIMITS_SWEEP = finding(
    "On {clusters:list} the CPU most likely sets the pace in the layout that gets most done, {shares_pct:percents} of "
    "the critical path; beside a fast one kernels do.",
    "A faster GPU helps beside a fast CPU only: try fewer launches, CUDA graphs, torch.compile.",
)
LATENCY_OR_GPU_LIMITS_SWEEP = finding(
    "On {clusters:list} latencies of launches and waits most likely set the pace in the layout that gets most done, "
    "{shares_pct:percents} of the critical path; beside a fast CPU kernels do.",
    "A faster GPU helps beside a fast CPU only: try fewer and larger kernels.",
)
GPU_OR_CPU_LIMITS_SWEEP = finding(
    "On {clusters:list} kernels most likely set the pace in the layout that gets most done, {shares_pct:percents} of "
    "the critical path; beside a slow CPU that does.",
    "A faster GPU, or less work, shortens it beside a fast CPU.",
)
UNEXPLAINED_LIMITS_SWEEP = finding(
    "On {clusters:list} time that nothing recorded explains sets the pace in the layout that gets most done: "
    "{shares_pct:percents} of the critical path. It is kept as measured.",
    "`tracekit doctor` says what to record, so that it is explained.",
)


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


PEAK_PRODUCTS = note("matrix products at the GPU's peak: the MFU")
PEAK_RECOMPUTED = note("products of activations that are computed again: with the MFU they are the HFU")
PEAK_UPDATE = note("products of the optimizer, such as Muon's, at the GPU's peak: no part of the MFU")
PEAK_MEMORY = note("products that wait for memory: too few rows, columns or heads for the peak")
PEAK_WIDE_FORMATS = note("products in fp32 or TF32: what they take beyond the 16-bit peak")
PEAK_WAVES = note("the last round of a product's tiles, and SMs without a tile: sizes that don't fill the GPU")
PEAK_POWER = note("the clock that the board's power limit leaves to products")
PEAK_SLOW_PRODUCTS = note("products below what their sizes allow: launch, edges of tiles, the library")
PEAK_BUBBLE = note("stages of the pipeline wait for each other")
PEAK_OTHER = note("{family} kernels, which have no products")
PEAK_IDLE = note("the GPU is idle")


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
