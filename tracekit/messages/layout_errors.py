"""Layouts that can't be predicted."""

from tracekit.messages.model import Severity, Template

BATCH_WORK_UNKNOWN = Template(
    "batch-work-unknown",
    Severity.ERROR,
    "The batch can't be changed: {time_pct} of kernel time has no known work, most of it of {largest}.",
)
BATCH_SHAPES_UNKNOWN = Template(
    "batch-shapes-unknown",
    Severity.ERROR,
    "The batch can't be changed: {time_pct} of kernel time has no known work.",
    "Record with record_shapes=True.",
)
CONTEXT_UNKNOWN = Template(
    "context-unknown",
    Severity.ERROR,
    "The context can't be changed: no attention of a decode batch has known queries and keys.",
    "Choose a decode batch with {--steps}, and give the model's config.json with {--model-config}.",
)
TENSOR_PARALLEL_WORK_UNKNOWN = Template(
    "tensor-parallel-work-unknown",
    Severity.ERROR,
    "Tensor parallelism can't be changed: {time_pct} of kernel time has no known work, most of it of {largest}.",
)
TENSOR_PARALLEL_SHAPES_UNKNOWN = Template(
    "tensor-parallel-shapes-unknown",
    Severity.ERROR,
    "Tensor parallelism can't be changed: {time_pct} of kernel time has no known work.",
    "Record with record_shapes=True.",
)
LAYERS_NOT_LAUNCHED = Template(
    "layers-not-launched",
    Severity.ERROR,
    "The layers were launched before the trace began, or by a CUDA graph.",
)
NO_TRAINING = Template(
    "no-training",
    Severity.ERROR,
    "The trace has no forward pass followed by a backward pass; pipeline parallelism and FSDP are predicted of "
    "training only.",
)
LAYERS_MIXED = Template(
    "layers-mixed",
    Severity.ERROR,
    "The trace doesn't tell the layers: only {time_pct} of its forward pass are {layers} layers that repeat.",
)
LAYERS_UNREPEATED = Template("layers-unrepeated", Severity.ERROR, "The trace doesn't tell the layers: none repeat.")
LAYERS_UNPAIRED = Template(
    "layers-unpaired",
    Severity.ERROR,
    "{forward} layers repeat in the forward pass, {backward} in the backward pass: they can't be paired.",
)
EXPERT_WORK_UNKNOWN = Template(
    "expert-work-unknown",
    Severity.ERROR,
    "Expert parallelism can't be predicted: {time_pct} of kernel time is MoE kernels without known work.",
)
NO_GROUPED_EXPERTS = Template(
    "no-grouped-experts",
    Severity.ERROR,
    "The trace has no MoE layers for expert parallelism: none run their experts at once, as grouped GEMMs do.",
)
EXPERT_WIDTHS_DIFFER = Template(
    "expert-widths-differ",
    Severity.ERROR,
    "Experts read tokens {read} wide and write them {written} wide: they can't be recognised.",
)
EXPERTS_INDIVISIBLE = Template(
    "experts-indivisible",
    Severity.ERROR,
    "{experts} experts can't be split evenly over {ranks:count rank}.",
)
TRACE_BEGINS_WITH_EXPERTS = Template(
    "trace-begins-with-experts",
    Severity.ERROR,
    "The trace begins with MoE experts: where their tokens come from isn't in it.",
)
BACKWARD_WITHOUT_LAUNCHES = Template(
    "backward-without-launches",
    Severity.ERROR,
    "The trace's backward pass launches nothing on the GPU.",
)
GRADIENTS_WITHOUT_LAUNCHES = Template(
    "gradients-without-launches",
    Severity.ERROR,
    "Gradients are accumulated on a thread that has launched nothing on the GPU.",
)
EMBEDDING_TABLES = Template(
    "embedding-tables",
    Severity.ERROR,
    "The trace has embedding tables, which replicas would shard: their exchange isn't known.",
)
GRADIENTS_UNKNOWN = Template(
    "gradients-unknown",
    Severity.ERROR,
    "The trace has one data-parallel rank, and doesn't tell the gradients that replicas would exchange.",
    "Record with record_shapes=True and without capturing the backward pass in a CUDA graph, or record two ranks.",
)
GROUPS_CONTRADICT_RANKS = Template(
    "groups-contradict-ranks",
    Severity.ERROR,
    "The trace's groups ({groups:list}) don't add up to its {ranks} ranks.",
)
NO_TENSOR_PARALLEL_GEMM = Template(
    "no-tensor-parallel-gemm",
    Severity.ERROR,
    "Tensor parallelism can't be changed: no GEMM's output has the size of a group's message.",
)
NO_PAIRED_GEMMS = Template(
    "no-paired-gemms",
    Severity.ERROR,
    "The trace has no layers for tensor parallelism: no GEMM reads as much as one writes.",
)
NO_BLOCKS = Template(
    "no-blocks",
    Severity.ERROR,
    "The trace has no layers for tensor parallelism: no GEMM follows attention or another GEMM.",
)
GEMM_SPLIT_UNKNOWN = Template(
    "gemm-split-unknown",
    Severity.ERROR,
    "How {op} on {shapes} is split over ranks can't be told.",
)
HEADS_INDIVISIBLE = Template(
    "heads-indivisible",
    Severity.ERROR,
    "{op}: {heads} heads can't be split over {ranks} ranks.",
)
COLUMNS_INDIVISIBLE = Template(
    "columns-indivisible",
    Severity.ERROR,
    "{op}: {columns} columns between a block's GEMMs can't be split over {ranks} ranks.",
)
EXPERTS_OUTSIDE_ATTENTION_TOKENS = Template(
    "experts-outside-attention-tokens",
    Severity.ERROR,
    "{time_pct} of the GEMMs whose outputs ranks would all-reduce work on other tokens than attention.",
)
STAGE_MESSAGES_UNKNOWN = Template(
    "stage-messages-unknown",
    Severity.ERROR,
    "What stages would send each other isn't known: the layers have no GEMMs with shapes.",
    "Record with record_shapes=True.",
)
RANKS_DONT_FACTOR = Template(
    "ranks-dont-factor",
    Severity.ERROR,
    "{ranks:count rank} can't be laid out as dp {dp} x tp {tp} x pp {pp}.",
)
EXPERT_PARALLEL_INDIVISIBLE = Template(
    "expert-parallel-indivisible",
    Severity.ERROR,
    "ep {ep} doesn't divide the {ranks:count rank} of a stage.",
)
SCHEDULE_UNKNOWN = Template(
    "schedule-unknown",
    Severity.ERROR,
    "There is no schedule {name!r}.",
    "Give 1f1b, zero-bubble, interleaved, or interleaved:N with at least 2 chunks a stage.",
)
SCHEDULE_WITHOUT_STAGES = Template(
    "schedule-without-stages",
    Severity.ERROR,
    "Micro-batches and schedules need pipeline parallelism.",
    "Give {--pp} too.",
)
RECORDED_SCHEDULE_FIXED = Template(
    "recorded-schedule-fixed",
    Severity.ERROR,
    "The schedule of the trace's own pipeline can't be changed: its stages are as recorded.",
)
RECORDED_MICRO_BATCHES_FIXED = Template(
    "recorded-micro-batches-fixed",
    Severity.ERROR,
    "The micro-batches of the trace's own pipeline can't be changed: its sends are as recorded.",
)
RECORDED_STAGES_FIXED = Template(
    "recorded-stages-fixed",
    Severity.ERROR,
    "{old} can't become {new}: a trace's own pipeline stages can't be changed.",
)
RECORDED_RANKS_WITHOUT_EXPERT_PARALLEL = Template(
    "recorded-ranks-without-expert-parallel",
    Severity.ERROR,
    "The trace has several ranks without expert parallelism: its all-to-alls can't be predicted.",
    "Give the trace of one GPU, or of an expert-parallel job.",
)
EXPERTS_WITH_FSDP_STAGES = Template(
    "experts-with-fsdp-stages",
    Severity.ERROR,
    "Expert parallelism with both FSDP and pipeline parallelism isn't supported.",
    "Leave out {--fsdp} or {--pp}.",
)
EXPERTS_OVER_MIXED_RANKS = Template(
    "experts-over-mixed-ranks",
    Severity.ERROR,
    "Experts are split over data-parallel or the {tp} tensor-parallel ranks, not over {ep} of both.",
    "Leave out {--tp}, or give {--ep} {tp}.",
)
RECORDED_DDP_FIXED = Template(
    "recorded-ddp-fixed",
    Severity.ERROR,
    "The trace's own data parallelism can't be turned into FSDP.",
    "Give a one-GPU trace.",
)
FSDP_OF_ONE_RANK = Template(
    "fsdp-of-one-rank",
    Severity.ERROR,
    "FSDP needs several data-parallel ranks.",
    "Give their number with {--dp} or {--world-size}.",
)
FSDP_OF_INFERENCE = Template(
    "fsdp-of-inference",
    Severity.ERROR,
    "What FSDP gathers in inference isn't known.",
    "Leave out {--fsdp}.",
)
PARAMETERS_OUTSIDE_LAYERS = Template(
    "parameters-outside-layers",
    Severity.ERROR,
    "No parameter comes as often as the {layers} layers that repeat.",
)
EXPERTS_OUTSIDE_LAYERS = Template(
    "experts-outside-layers",
    Severity.ERROR,
    "Experts lie outside the {layers} layers that repeat: what gathers them isn't known.",
)
INSERTION_INTO_SEVERAL_RANKS = Template(
    "insertion-into-several-ranks",
    Severity.ERROR,
    "Collectives can't be inserted into several ranks that were read together.",
    "Give the trace of one.",
)
WEIGHT_GRADIENTS_UNKNOWN = Template(
    "weight-gradients-unknown",
    Severity.ERROR,
    "The trace doesn't tell which GEMMs compute weight gradients.",
    "Record with record_shapes=True.",
)
INTERLEAVING_INDIVISIBLE = Template(
    "interleaving-indivisible",
    Severity.ERROR,
    "{micro_batches} micro-batches can't be interleaved over {stages} stages.",
    "Take a multiple of the stages, or {--pp-schedule} 1f1b.",
)
SCHEDULE_TOO_LARGE = Template(
    "schedule-too-large",
    Severity.ERROR,
    "{micro_batches} micro-batches over {stages} stages are too many to be scheduled.",
)
LAYERS_INDIVISIBLE = Template(
    "layers-indivisible",
    Severity.ERROR,
    "{layers} layers can't be split over {stages} stages of {chunks:count chunk}.",
)

LINKS_UNKNOWN = Template(
    "links-unknown",
    Severity.ERROR,
    "{layout} on {target}: the links between them aren't known.",
    "Name a cluster in its place, such as {--cluster} {suggestion}.",
)
CLUSTER_TOO_SMALL = Template(
    "cluster-too-small",
    Severity.ERROR,
    "{layout} don't fit on {cluster}, which has {gpus:count GPU}.",
    "Name a larger cluster, or predict a job that fits: {--world-size} {fitting}.",
)
CLUSTER_SMALLER_THAN_REPLICA = Template(
    "cluster-smaller-than-replica",
    Severity.ERROR,
    "{layout} don't fit on {cluster}, which has {gpus:count GPU}.",
    "Name a larger cluster, as one replica of the job has {ranks:count rank}.",
)
NO_TARGET_PREDICTED = Template("no-target-predicted", Severity.ERROR, "{reasons:sentences}")
TARGET_REFUSED = Template("target-refused", Severity.ERROR, "{target}: {reason}")
NO_LAYOUT_PREDICTED = Template("no-layout-predicted", Severity.ERROR, "None of the layouts can be predicted: {reason}")
REPLICA_TOO_LARGE = Template(
    "replica-too-large",
    Severity.ERROR,
    "{gpus:count GPU} can't hold {ranks} ranks, one replica",
)
GPU_NAME_IS_CLUSTER = Template(
    "gpu-name-is-cluster",
    Severity.ERROR,
    "{name} is a cluster, no GPU.",
    "Its GPU is {gpu}; {--cluster} {name} means all of it.",
)
SOURCE_CLUSTER_OF_OTHER_GPU = Template(
    "source-cluster-of-other-gpu",
    Severity.ERROR,
    "{--source-cluster} {cluster} has {gpu}, the trace {source_gpu}.",
)
SOURCE_CLUSTER_TOO_SMALL = Template(
    "source-cluster-too-small",
    Severity.ERROR,
    "{--source-cluster} {cluster} has {gpus:count GPU}, the trace {ranks:count rank}.",
)
