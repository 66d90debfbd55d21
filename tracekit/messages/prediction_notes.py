"""Notes of a prediction: what it assumes, and its limits."""

from tracekit.messages.model import Severity, Template

JOB_LAYOUT = Template("job-layout", Severity.NOTE, "Layout: {layout}.")
BATCH_PER_RANK_KEPT = Template(
    "batch-per-rank-kept",
    Severity.NOTE,
    "Each rank keeps its batch: the job's batch is {replicas} times a rank's.",
)
BATCH_PER_RANK_EQUAL = Template(
    "batch-per-rank-equal",
    Severity.NOTE,
    "All ranks have the same batch: the job's batch is {replicas} times a rank's.",
)
SWEEP_KEEPS_BATCH = Template(
    "sweep-keeps-batch",
    Severity.NOTE,
    "Each rank keeps its batch: the job's batch grows with its data-parallel ranks.",
)
SWEEP_KEEPS_MICRO_BATCH = Template(
    "sweep-keeps-micro-batch",
    Severity.NOTE,
    "Each rank keeps its batch: the job's batch grows with its data-parallel ranks. With pipeline stages each "
    "micro-batch is as large as a traced pass.",
)
BATCH_SCALED = Template(
    "batch-scaled",
    Severity.NOTE,
    "Each step has {batch_ratio:g} times the batch: all sizes in the kernels' shapes grow but those of parameters; "
    "the CPU's work stays, a data loader's too. Speedups are per sample.",
)
CONTEXT_CHANGED = Template(
    "context-changed",
    Severity.NOTE,
    "Each sequence of the decode batch sees {keys:,} keys: only attention changes. Memory for their cache isn't "
    "counted.",
)
GPU_NAME_AMBIGUOUS = Template(
    "gpu-name-ambiguous",
    Severity.NOTE,
    "{name!r} was taken as {gpu}; there is also {others:list}.",
)
GPU_IN_LAPTOP = Template(
    "gpu-in-laptop",
    Severity.NOTE,
    "The laptop is assumed to give its GPU {power_w:.0f} W, the most there is: with less the GPU is slower.",
)
GPU_UNLIKE_KNOWN = Template(
    "gpu-unlike-known",
    Severity.WARNING,
    "{gpu} is more than {ratio:g} times beyond all known GPUs in {figures:list}: predictions are extrapolated, and may "
    "be off by any factor.",
    "Check these figures and their units.",
)
GPU_ALSO_REQUESTED = Template(
    "gpu-also-requested",
    Severity.NOTE,
    "{gpu} was also requested by itself and is predicted on {target} only.",
    "Without {--cluster} its collectives stay as measured.",
)
SOURCE_GPU_UNKNOWN = Template(
    "source-gpu-unknown",
    Severity.NOTE,
    "The source GPU is unknown: kernels with shapes are predicted without their measurement, others keep theirs.",
    "Name it with {--source-gpu}.",
)
DTYPE_UNSUPPORTED = Template(
    "dtype-unsupported",
    Severity.NOTE,
    "{gpu} has no {dtype}, so the program doesn't run there as is: {time_pct} of kernel time is estimated in "
    "{runs_as}.",
)
ATTENTION_BUILT_FOR_A100 = Template(
    "attention-built-for-a100",
    Severity.NOTE,
    "FlashAttention 2 ({time_pct} of kernel time there) is written for an A100 and reaches at most {rate_pct} of what "
    "the tensor cores of {gpu} can do; at all of it the step would be {saves_us} shorter.",
    "Shorten these kernels with cuDNN's attention, or FlashAttention 3 (Hopper) or 4 (Blackwell).",
)
TARGET_PREDICTED_TOO_FAST = Template(
    "target-predicted-too-fast",
    Severity.NOTE,
    "{pairs} published throughputs predicted for {gpu} from other kinds of GPU were {bias_pct} too fast in the "
    "median, the worst by {worst_pct:+.0f} %. With kernels as much longer, this step takes {step_us}; perhaps it is "
    "less, as a trace has the time outside of kernels, which published throughputs lack.",
)
TARGET_PREDICTED_TOO_SLOW = Template(
    "target-predicted-too-slow",
    Severity.NOTE,
    "{pairs} published throughputs predicted for {gpu} from other kinds of GPU were {bias_pct} too slow in the "
    "median, the worst by {worst_pct:+.0f} %. With kernels as much shorter, this step takes {step_us}; perhaps it is "
    "less, as a trace has the time outside of kernels, which published throughputs lack.",
)
KERNELS_CONTEND = Template(
    "kernels-contend",
    Severity.NOTE,
    "{overlap_pct} of the kernels' time overlaps other kernels: a step takes {apart_us}, as shown, if each keeps its "
    "time, and {contended_us} with contention, by a simple model.",
)
CONTENTION_LEFT_OUT = Template(
    "contention-left-out",
    Severity.NOTE,
    "{overlap_pct} of the kernels' time overlaps other kernels: a step takes {apart_us}, as shown, if each keeps its "
    "time. With contention it takes longer, which isn't worked out rank by rank.",
    "Without {--engine} it is.",
)
EDITS_APPLIED = Template("edits-applied", Severity.NOTE, "Predicted with {edits:list}.")
HOST_TIME_KEPT = Template(
    "host-time-kept",
    Severity.NOTE,
    "The CPU's own work is assumed to take as long as measured; the interval allows for a CPU {host_pct} slower or "
    "faster, which changes the step by up to {longer_us}.",
    "{--host-speed} changes it.",
)
HOST_NOT_GIVEN = Template(
    "host-not-given",
    Severity.NOTE,
    "The target's CPU isn't known: its own work may take {low_ratio:.2g} to {high_ratio:.2g} times as long as "
    "measured, which changes the step by up to {longer_us}.",
    "{--host} same is a CPU like the trace's.",
)
HOST_STACK_CHANGES = Template(
    "host-stack-changes",
    Severity.NOTE,
    "The CPU's own work is carried from {source} to {target}, whose software is another: it may take {low_ratio:.2g} "
    "to {high_ratio:.2g} times as long as likely, which changes the step by up to {longer_us}.",
)
UNKNOWN_TIME_VARIES = Template(
    "unknown-time-varies",
    Severity.NOTE,
    "For {shorter_us} of the step the trace doesn't say what the GPU did or waited for. The interval reaches from none "
    "of it, a step of {least_us}, to all of it.",
    "`tracekit doctor` says what to record.",
)
USUAL_HOST = Template(
    "usual-host",
    Severity.NOTE,
    "The target's CPU isn't known, and it changes the step. One like the trace's: {same_low_us} to {same_high_us}. The "
    "one usual beside {gpu}: {step_time_us} ({low_us} to {high_us}). The interval holds both. By {ops} ops, the "
    "trace's host is {speed_ratio:.2g} times as fast as the usual one; known machines with that GPU: {machines}.",
    "{--host} same or typical narrows it; if you know the machine, give its speed.",
)
POWER_CAPPED = Template(
    "power-capped",
    Severity.NOTE,
    "Under {power:g} W instead of {limit:g} W, kernels take {slowdown_pct:.0f} % longer: the clock falls where they "
    "would draw more. How far was fitted to training steps on four GPUs up to 2020.",
)
POWER_CAP_WITHOUT_EFFECT = Template(
    "power-cap-without-effect",
    Severity.NOTE,
    "{power:g} W is no limit for a {gpu}, whose board is limited to {limit:g} W.",
)
CLOCK_FIXED = Template(
    "clock-fixed",
    Severity.NOTE,
    "At {clock:g} MHz instead of up to {highest:.0f} MHz, kernels take {slowdown_pct:.0f} % longer; those that wait "
    "for memory don't. This wasn't checked against measurements.",
)
CLOCK_FIXED_WITHOUT_EFFECT = Template(
    "clock-fixed-without-effect",
    Severity.NOTE,
    "{clock:g} MHz is no limit for a {gpu}, which runs at {highest:.0f} MHz at most.",
)
CLOCK_LOWERED = Template(
    "clock-lowered",
    Severity.NOTE,
    "At its boost clock the step would draw {demand:.0f} W, more than the {limit:g} W of a {gpu}: its clock falls to "
    "{clock_pct:.0f} %, and its kernels take {longer_pct:.1f} % longer, those on the tensor cores most. This is in the "
    "times.",
)
HOST_OF_CAPTURE = Template(
    "host-of-capture",
    Severity.NOTE,
    "The CPU is {host}: it takes {low_ratio:.2g} to {high_ratio:.2g} times as long for a kernel as expected, by how "
    "programs and machines differ. {--host} names another one, {--cuda-graph} leaves it out.",
)
HOST_CHANGED = Template(
    "host-changed",
    Severity.NOTE,
    "The CPU's own work is predicted to take {time_ratio:.2g} times as long as measured ({low_ratio:.2g} to "
    "{high_ratio:.2g}), for {--host} {host}: by {ops} ops, the trace's host has {speed:.2g} times the speed of the "
    "reference host.",
)
PROFILER_COST_KNOWN = Template(
    "profiler-cost-known",
    Severity.NOTE,
    "{host_pct} of this step is CPU time that the GPU doesn't hide, and the profiler makes it longer: without it the "
    "step would take {step_us}.",
    "{--unprofiled-step} {without_us:milliseconds} takes the profiler's cost out.",
)
PROFILER_COST_RECORDED = Template(
    "profiler-cost-recorded",
    Severity.NOTE,
    "{host_pct} of this step is CPU time that the GPU doesn't hide, and the profiler makes it longer: {recorded_us} a "
    "step are its own recorded work, and recording {recorded:list} takes time that the trace doesn't note.",
    "Time a step without the profiler, and give that time: {--unprofiled-step}.",
)
PROFILER_COST_UNKNOWN = Template(
    "profiler-cost-unknown",
    Severity.NOTE,
    "{host_pct} of this step is CPU time that the GPU doesn't hide, and the profiler makes it longer: recording "
    "{recorded:list} takes time that the trace doesn't note.",
    "Time a step without the profiler, and give that time: {--unprofiled-step}.",
)
CALIBRATION_USED = Template(
    "calibration-used",
    Severity.NOTE,
    "Calibrated with {label}: {families:list}.",
    "{--no-calibration} leaves it out.",
)
CALIBRATION_OF_OTHER_GPU = Template(
    "calibration-of-other-gpu",
    Severity.NOTE,
    "Kept consistent with {gpu}, which is calibrated.",
    "{--no-calibration} leaves that out.",
)
PRICE_MISSING = Template("price-missing", Severity.NOTE, "No price is known.", "Give it with {--price} GPU=DOLLARS.")

CLUSTER_PARTLY_USED = Template(
    "cluster-partly-used",
    Severity.NOTE,
    "The job uses {ranks} of the cluster's {gpus:count GPU}.",
    "{--world-size} changes it.",
)
NODE_TOO_LARGE = Template(
    "node-too-large",
    Severity.NOTE,
    "{cluster} has {gpus} GPUs on the fast links of one node, and known nodes of {gpu} have at most {known_gpus}.",
    "{nodes} of these are {suggestion}, or whatever their network is.",
)
COLLECTIVES_KEPT = Template(
    "collectives-kept",
    Severity.NOTE,
    "Collectives ({time_pct} of the measured kernel time) are kept as measured; nothing else runs for {alone_us} of "
    "the step. The interval holds from none of their time to {factor:g} times as much.",
    "Name the links with {--cluster}.",
)
LINKS_ASSUMED = Template(
    "links-assumed",
    Severity.NOTE,
    "Collectives ({time_pct} of the measured kernel time) are predicted over the links of {cluster}, the usual nodes "
    "of that GPU, and within what other nodes have.",
    "Name the real ones with {--cluster}.",
)
SOURCE_CLUSTER_UNKNOWN = Template(
    "source-cluster-unknown",
    Severity.NOTE,
    "The source cluster is unknown, because {reason}: collectives take the model's time, not the measured time "
    "multiplied by the model's ratio.",
    "Name it with {--source-cluster}.",
)
SOURCE_CLUSTER_WITHOUT_GPU = Template("source-cluster-without-gpu", Severity.NOTE, "its GPU is unknown")
SOURCE_CLUSTER_WITHOUT_NETWORK = Template(
    "source-cluster-without-network",
    Severity.NOTE,
    "the network of {ranks:count rank} on {nodes:count node} is unknown",
)
SOURCE_CLUSTER_ASSUMED = Template(
    "source-cluster-assumed",
    Severity.NOTE,
    "The source cluster is assumed to be {cluster}: {nodes:count usual node} of its GPU.",
    "Correct it with {--source-cluster}.",
)
SOURCE_CLUSTER_FROM_HOSTS = Template(
    "source-cluster-from-hosts",
    Severity.NOTE,
    "The source cluster is {cluster}, by the names of {hosts:count host}.",
    "Correct it with {--source-cluster}.",
)
CLUSTER_MEASURED = Template(
    "cluster-measured",
    Severity.NOTE,
    "Collectives on {cluster} follow {measurements:count measurement} in its file.",
)
PEER_ACCESS_MISSING = Template(
    "peer-access-missing",
    Severity.NOTE,
    "{gpu}s have no peer-to-peer access: their messages are assumed to go through host memory at a fifth of PCI "
    "Express's rate, on good servers half.",
    "If they have, write peer_access = true into a cluster's file.",
)
COLLECTIVES_SLOWER_THAN_LINKS = Template(
    "collectives-slower-than-links",
    Severity.NOTE,
    "Collectives took {beyond_us} a step more than the trace's links explain. That time is kept as measured, whether "
    "it was waiting for other ranks or contention with other kernels.",
)
COLLECTIVE_SIZES_INFERRED = Template(
    "collective-sizes-inferred",
    Severity.NOTE,
    "{time_pct} of the collectives' time has no message size: it is inferred from launches and durations.",
)
COLLECTIVES_UNPREDICTED = Template(
    "collectives-unpredicted",
    Severity.NOTE,
    "{time_pct} of the collectives' time can't be predicted and is kept as measured. The interval holds from none of "
    "it to {factor:g} times as much.",
)

PIPELINE_USED = Template(
    "pipeline-used",
    Severity.NOTE,
    "Pipeline: {pipeline}. Stages wait for others for {bubble_pct} of the step (the bubble). Kernels and timelines "
    "are shown of all stages on one GPU.",
    "{--micro-batches} and {--pp-schedule} change it.",
)
STAGES_UNEVEN = Template(
    "stages-uneven",
    Severity.NOTE,
    "The slowest stage works {work_ratio:.1f} times as long as the mean one: layers are split evenly, and what comes "
    "before the first and after the last layer stays on the end stages.",
)
STAGE_GATHERS_EXPOSED = Template(
    "stage-gathers-exposed",
    Severity.NOTE,
    "The mean stage waits {gather_us} a step for its parameters, which it gathers once its first input has come, up "
    "to {layers_ahead} layers ahead. At the interval's low end only the first stage waits.",
)
MICRO_BATCH_SCALED = Template(
    "micro-batch-scaled",
    Severity.NOTE,
    "A micro-batch is {size_ratio:g} times as large as a traced pass: the job's batch is {batch_ratio:g} times a "
    "rank's in the trace.",
)
STAGE_SENDS = Template(
    "stage-sends",
    Severity.NOTE,
    "Stages send each other {message_bytes} a micro-batch, derived from the layers' GEMMs, in {send_us}. Of that, "
    "{latency_us} is latency, as in published pipelines; the interval allows for {latency_ends_us:interval}.",
)

INSERTED_EXPOSED = Template(
    "inserted-exposed",
    Severity.NOTE,
    "The inserted collectives take {inserted_us} a step, during which nothing else runs.",
)
INSERTED_OVERLAPPED = Template(
    "inserted-overlapped",
    Severity.NOTE,
    "The inserted collectives take {inserted_us} a step; for {exposed_us} of it nothing else runs.",
)
INSERTED_SLOW_KERNELS = Template(
    "inserted-slow-kernels",
    Severity.NOTE,
    "The inserted collectives take {inserted_us} a step; for {exposed_us} of it nothing else runs, and kernels that "
    "overlap the rest are assumed to lose {lost_pct} of the GPU, {slower_us}, at most {max_lost_pct}.",
)

MEMORY_FITS = Template("memory-fits", Severity.NOTE, "The job fits into memory: {reason}.")
MEMORY_TOO_SMALL = Template("memory-too-small", Severity.NOTE, "The job doesn't fit into memory: {reason}.")
MEMORY_UNCERTAIN = Template("memory-uncertain", Severity.NOTE, "The job may or may not fit into memory: {reason}.")
MEMORY_LOWER_BOUND = Template("memory-lower-bound", Severity.NOTE, "it needs at least {min_bytes} of {usable_bytes}")
MEMORY_UPPER_BOUND = Template("memory-upper-bound", Severity.NOTE, "it needs at most {max_bytes} of {usable_bytes}")
MEMORY_BOUNDS = Template(
    "memory-bounds",
    Severity.NOTE,
    "it needs at least {min_bytes} and at most {max_bytes} of {usable_bytes}",
)
MEMORY_BOUND_BELOW_ONLY = Template(
    "memory-bound-below-only",
    Severity.NOTE,
    "it needs at least {min_bytes} of {usable_bytes}, and the trace doesn't tell how much more",
)
MEMORY_UNKNOWN = Template("memory-unknown", Severity.NOTE, "the trace doesn't tell how much of {usable_bytes} it needs")
MEMORY_AS_TRACED = Template("memory-as-traced", Severity.NOTE, "it fitted into the {source_bytes} of the trace's GPU")
MEMORY_RECORDED = Template(
    "memory-recorded",
    Severity.NOTE,
    "it took {allocated_bytes} of tensors, {reserved_bytes} reserved; {usable_bytes} are usable",
)
ATTENTION_OF_CAPTURE = Template(
    "attention-of-capture",
    Severity.NOTE,
    "Attention is computed by {kernels}.",
    "{--attention} chooses another way.",
)
QUANTIZATION_OF_CAPTURE = Template(
    "quantization-of-capture",
    Severity.NOTE,
    "The linear layers hold weights of fp8 (e4m3), and cast their inputs to it, as the config says ({method}).",
)
MEMORY_CAPTURED = Template(
    "memory-captured",
    Severity.NOTE,
    "its tensors take {peak_bytes} at once, beside the workspaces of kernels; {usable_bytes} are usable",
)
MEMORY_CAPTURED_SCALED = Template(
    "memory-captured-scaled",
    Severity.NOTE,
    "its tensors take {min_bytes} to {max_bytes} at once, beside the workspaces of kernels; {usable_bytes} are usable",
)
MEMORY_RECORDED_PLUS_BUCKETS = Template(
    "memory-recorded-plus-buckets",
    Severity.NOTE,
    "it took {allocated_bytes} of tensors, {reserved_bytes} reserved, and gradient buckets add up to {buckets_bytes};"
    " {usable_bytes} are usable",
)
