"""Findings: what limits the step."""

from tracekit.messages.model import Severity, Template

LAUNCH_BOUND = Template(
    "launch-bound",
    Severity.FINDING,
    "The CPU sets a floor of {floor_us}, {floor_pct} of the step, whatever the GPU.",
    "Try CUDA graphs (what this saving stands for), torch.compile, larger batches or fewer synchronisations.",
)
LAUNCH_BOUND_PARTLY = Template(
    "launch-bound-partly",
    Severity.FINDING,
    "The CPU sets a floor of {floor_us}, {floor_pct} of the step, whatever the GPU; {kept_us} of it would stay with "
    "any CPU.",
    "Try CUDA graphs (what this saving stands for), torch.compile, larger batches or fewer synchronisations.",
)
SYNCHRONISATION = Template(
    "synchronisation",
    Severity.FINDING,
    "The CPU waits for the GPU instead of launching ahead; {idle_us} of idle GPU a step follow.",
    "Wait rarely or later: .item(), nonzero, masks as indices, .cpu(), prints and unpinned copies all wait.",
)
DATA_LOADING = Template(
    "data-loading",
    Severity.FINDING,
    "Waiting for the data loader takes {loading_us} of a step.",
    "Use DataLoader(num_workers=..., prefetch_factor=..., persistent_workers=True), or preprocess on the GPU.",
)
ALLOCATOR = Template(
    "allocator",
    Severity.FINDING,
    "Allocating and freeing GPU memory takes {calls_us} of a step.",
    "Keep shapes the same, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and don't call "
    "torch.cuda.empty_cache().",
)
EXPOSED_COMMUNICATION = Template(
    "exposed-communication",
    Severity.FINDING,
    "Collectives run alone for {exposed_us}, {exposed_pct} of the step.",
    "Overlap them with compute (bucket sizes, prefetch), or look for a rank that comes late.",
)
EXPOSED_COMMUNICATION_BEHIND_CPU = Template(
    "exposed-communication-behind-cpu",
    Severity.FINDING,
    "Collectives run alone for {exposed_us}, {exposed_pct} of the step, which would be as long without them: the CPU "
    "is the limit.",
    "Shorten the CPU's work first.",
)
STRAGGLER = Template(
    "straggler",
    Severity.FINDING,
    "The others wait for rank {rank}: it comes last to {last_pct} of its collectives.",
    "Look at what it does more: data loading, logging, uneven shards or experts, a slower GPU or CPU.",
)
SMALL_COLLECTIVES = Template(
    "small-collectives",
    Severity.FINDING,
    "{collectives:mean} collectives of less than 1 MiB take {collectives_us} of a step.",
    "Send them together: larger buckets (bucket_cap_mb), coalesced calls, flattened parameters.",
)
FULL_PRECISION = Template(
    "full-precision",
    Severity.FINDING,
    "GEMMs take {gemms_us} of a step in fp32, without tensor cores.",
    'Run them in TF32 with torch.set_float32_matmul_precision("high"); autocast to bf16 is faster still.',
)
FULL_PRECISION_WITHOUT_TF32 = Template(
    "full-precision-without-tf32",
    Severity.FINDING,
    "GEMMs take {gemms_us} of a step in fp32, without tensor cores.",
    "Run them in half precision: torch.autocast with a GradScaler.",
)
TENSOR_CORES_UNUSED = Template(
    "tensor-cores-unused",
    Severity.FINDING,
    "Half-precision GEMMs take {gemms_us} of a step without tensor cores.",
    "Give them contiguous, 16-byte aligned inputs; look whether another backend (cuBLASLt) has a kernel.",
)
MISALIGNED_SHAPES = Template(
    "misaligned-shapes",
    Severity.FINDING,
    "GEMMs with n or k not a multiple of {alignment} take {gemms_us} of a step.",
    "Pad these dimensions (vocabulary, classes, channels, sequence) to multiples of {alignment}, better 64.",
)
LOW_UTILIZATION = Template(
    "low-utilization",
    Severity.FINDING,
    "GEMMs and convolutions of {kernels_us} per step reach only {reached_pct} of what the GPU allows.",
    "They are too small or too thin to fill it: try a larger batch, batched or grouped GEMMs, other layouts.",
)
UNFUSED_ATTENTION = Template(
    "unfused-attention",
    Severity.FINDING,
    "Attention takes {kernels_us} of a step as separate GEMMs and softmaxes.",
    "Use torch.nn.functional.scaled_dot_product_attention (FlashAttention), which never writes the scores to memory.",
)
OLDER_ATTENTION = Template(
    "older-attention",
    Severity.FINDING,
    "FlashAttention 2 takes {kernels_us} of a step. It is written for an A100 and reaches at most {rate_pct} of what "
    "this GPU's tensor cores can do.",
    "Use torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION), or FlashAttention 3 (Hopper) or 4 (Blackwell).",
)
UNFUSED_CHAINS = Template(
    "unfused-chains",
    Severity.FINDING,
    "{kernels:mean} memory-bound kernels follow each other in chains, {kernels_us} of a step.",
    "Fuse them with torch.compile, or by hand: fused layers (norm with residual, bias with activation).",
)
UNFUSED_OPTIMIZER = Template(
    "unfused-optimizer",
    Severity.FINDING,
    "The optimizer takes {kernels_us} of a step in {kernels:mean} kernels.",
    "Use torch.optim.AdamW(..., fused=True), which reads and writes each parameter's state once.",
)
PAGEABLE_COPIES = Template(
    "pageable-copies",
    Severity.FINDING,
    "Copies of pageable memory take {copies_us} of a step.",
    "Pin the host memory (DataLoader(pin_memory=True), Tensor.pin_memory) and copy with non_blocking=True.",
)
CPU_IS_BOTTLENECK = Template(
    "cpu-is-bottleneck",
    Severity.FINDING,
    "On {targets:list} the CPU sets the pace of {shares_pct:percents} of the step (measured: {measured_pct}).",
    "A faster GPU won't help there: try fewer launches, CUDA graphs, torch.compile.",
)
COMMUNICATION_IS_BOTTLENECK = Template(
    "communication-is-bottleneck",
    Severity.FINDING,
    "On {targets:list} communication sets the pace of {shares_pct:percents} of the step (measured: {measured_pct}).",
    "Faster links would help more than a faster GPU.",
)
GPU_IS_BOTTLENECK = Template(
    "gpu-is-bottleneck",
    Severity.FINDING,
    "On {targets:list} kernels set the pace of {shares_pct:percents} of the step (measured: {measured_pct}).",
    "A faster GPU, or less work, shortens it.",
)
MEMORY_HEADROOM = Template(
    "memory-headroom",
    Severity.FINDING,
    "The job needs at most {max_bytes} of {gpu_bytes} of memory.",
    "Try a larger batch, which makes larger kernels ({--batch} 2); activation checkpointing isn't needed.",
)
DOES_NOT_FIT = Template(
    "does-not-fit",
    Severity.FINDING,
    "The job doesn't fit into the memory of {target}: {reason}.",
    "Shard it over more ranks (FSDP, ZeRO), offload, or take a smaller optimizer state.",
)
GRAPH_BREAKS = Template(
    "graph-breaks",
    Severity.FINDING,
    "A step runs {regions:mean} compiled regions: its graph is broken between them.",
    'Find out why with TORCH_LOGS="graph_breaks"; torch.compile(fullgraph=True) makes breaks an error.',
)
WARM_UP = Template(
    "warm-up",
    Severity.FINDING,
    "Step {step} takes {step_us}, the others {median_us}: it is still warming up.",
    "Measure later ones with {--steps} {first}:{last}, or record with schedule(warmup=...).",
)
FASTER_THAN_BOUND = Template(
    "faster-than-bound",
    Severity.FINDING,
    "{kernels:count kernel} ({time_pct:.1f} % of GPU time: {families:list}) run faster than their bound.",
    "They read from the L2 cache, or tracekit overestimates their work; their times are kept as measured.",
)

CPU_LIMITS_SWEEP = Template(
    "cpu-limits-sweep",
    Severity.FINDING,
    "On {clusters:list} the CPU sets the pace of {shares_pct:percents} of the step in the layout that gets most done.",
    "A faster GPU won't help there: try fewer launches, CUDA graphs, torch.compile.",
)
COMMUNICATION_LIMITS_SWEEP = Template(
    "communication-limits-sweep",
    Severity.FINDING,
    "On {clusters:list} communication sets the pace of {shares_pct:percents} of the step in the layout that gets most"
    " done.",
    "Faster links would help more than a faster GPU.",
)
GPU_LIMITS_SWEEP = Template(
    "gpu-limits-sweep",
    Severity.FINDING,
    "On {clusters:list} kernels set the pace of {shares_pct:percents} of the step in the layout that gets most done.",
    "A faster GPU, or less work, shortens it.",
)
