"""Layouts that can't be predicted."""

from tracekit.messages.model import error, name_templates

BATCH_WORK_UNKNOWN = error(
    "The batch can't be changed: {time_pct} of kernel time has no known work, most of it of {largest}."
)
BATCH_SHAPES_UNKNOWN = error(
    "The batch can't be changed: {time_pct} of kernel time has no known work.", "Record with record_shapes=True."
)
CONTEXT_UNKNOWN = error(
    "The context can't be changed: no attention of a decode batch has known queries and keys.",
    "Choose a decode batch with {--steps}, and give the model's config.json with {--model-config}.",
)
TENSOR_PARALLEL_WORK_UNKNOWN = error(
    "Tensor parallelism can't be changed: {time_pct} of kernel time has no known work, most of it of {largest}."
)
TENSOR_PARALLEL_SHAPES_UNKNOWN = error(
    "Tensor parallelism can't be changed: {time_pct} of kernel time has no known work.",
    "Record with record_shapes=True.",
)
LAYERS_NOT_LAUNCHED = error("The layers were launched before the trace began, or by a CUDA graph.")
NO_TRAINING = error(
    "The trace has no forward pass followed by a backward pass; pipeline parallelism and FSDP are predicted of "
    "training only."
)
LAYERS_MIXED = error(
    "The trace doesn't tell the layers: only {time_pct} of its forward pass are {layers} layers that repeat."
)
LAYERS_UNREPEATED = error("The trace doesn't tell the layers: none repeat.")
LAYERS_UNPAIRED = error(
    "{forward} layers repeat in the forward pass, {backward} in the backward pass: they can't be paired."
)
EXPERT_WORK_UNKNOWN = error(
    "Expert parallelism can't be predicted: {time_pct} of kernel time is MoE kernels without known work."
)
NO_GROUPED_EXPERTS = error(
    "The trace has no MoE layers for expert parallelism: none run their experts at once, as grouped GEMMs do."
)
EXPERT_WIDTHS_DIFFER = error("Experts read tokens {read} wide and write them {written} wide: they can't be recognised.")
EXPERTS_INDIVISIBLE = error("{experts} experts can't be split evenly over {ranks:count rank}.")
TRACE_BEGINS_WITH_EXPERTS = error("The trace begins with MoE experts: where their tokens come from isn't in it.")
BACKWARD_WITHOUT_LAUNCHES = error("The trace's backward pass launches nothing on the GPU.")
GRADIENTS_WITHOUT_LAUNCHES = error("Gradients are accumulated on a thread that has launched nothing on the GPU.")
EMBEDDING_TABLES = error("The trace has embedding tables, which replicas would shard: their exchange isn't known.")
GRADIENTS_UNKNOWN = error(
    "The trace has one data-parallel rank, and doesn't tell the gradients that replicas would exchange.",
    "Record with record_shapes=True and without capturing the backward pass in a CUDA graph, or record two ranks.",
)
GROUPS_CONTRADICT_RANKS = error("The trace's groups ({groups:list}) don't add up to its {ranks} ranks.")
NO_TENSOR_PARALLEL_GEMM = error(
    "Tensor parallelism can't be changed: no GEMM's output has the size of a group's message."
)
NO_PAIRED_GEMMS = error("The trace has no layers for tensor parallelism: no GEMM reads as much as one writes.")
NO_BLOCKS = error("The trace has no layers for tensor parallelism: no GEMM follows attention or another GEMM.")
GEMM_SPLIT_UNKNOWN = error("How {op} on {shapes} is split over ranks can't be told.")
HEADS_INDIVISIBLE = error("{op}: {heads} heads can't be split over {ranks} ranks.")
COLUMNS_INDIVISIBLE = error("{op}: {columns} columns between a block's GEMMs can't be split over {ranks} ranks.")
EXPERTS_OUTSIDE_ATTENTION_TOKENS = error(
    "{time_pct} of the GEMMs whose outputs ranks would all-reduce work on other tokens than attention."
)
STAGE_MESSAGES_UNKNOWN = error(
    "What stages would send each other isn't known: the layers have no GEMMs with shapes.",
    "Record with record_shapes=True.",
)
RANKS_DONT_FACTOR = error("{ranks:count rank} can't be laid out as dp {dp} x tp {tp} x pp {pp}.")
EXPERT_PARALLEL_INDIVISIBLE = error("ep {ep} doesn't divide the {ranks:count rank} of a stage.")
SCHEDULE_UNKNOWN = error(
    "There is no schedule {name!r}.",
    "Give 1f1b, zero-bubble, interleaved, or interleaved:N with at least 2 chunks a stage.",
)
SCHEDULE_WITHOUT_STAGES = error("Micro-batches and schedules need pipeline parallelism.", "Give {--pp} too.")
RECORDED_SCHEDULE_FIXED = error(
    "The schedule of the trace's own pipeline can't be changed: its stages are as recorded."
)
RECORDED_MICRO_BATCHES_FIXED = error(
    "The micro-batches of the trace's own pipeline can't be changed: its sends are as recorded."
)
RECORDED_STAGES_FIXED = error("{old} can't become {new}: a trace's own pipeline stages can't be changed.")
RECORDED_RANKS_WITHOUT_EXPERT_PARALLEL = error(
    "The trace has several ranks without expert parallelism: its all-to-alls can't be predicted.",
    "Give the trace of one GPU, or of an expert-parallel job.",
)
EXPERTS_WITH_FSDP_STAGES = error(
    "Expert parallelism with both FSDP and pipeline parallelism isn't supported.", "Leave out {--fsdp} or {--pp}."
)
EXPERTS_OVER_MIXED_RANKS = error(
    "Experts are split over data-parallel or the {tp} tensor-parallel ranks, not over {ep} of both.",
    "Leave out {--tp}, or give {--ep} {tp}.",
)
RECORDED_DDP_FIXED = error("The trace's own data parallelism can't be turned into FSDP.", "Give a one-GPU trace.")
FSDP_OF_ONE_RANK = error("FSDP needs several data-parallel ranks.", "Give their number with {--dp} or {--world-size}.")
FSDP_OF_INFERENCE = error("What FSDP gathers in inference isn't known.", "Leave out {--fsdp}.")
PARAMETERS_OUTSIDE_LAYERS = error("No parameter comes as often as the {layers} layers that repeat.")
EXPERTS_OUTSIDE_LAYERS = error("Experts lie outside the {layers} layers that repeat: what gathers them isn't known.")
INSERTION_INTO_SEVERAL_RANKS = error(
    "Collectives can't be inserted into several ranks that were read together.", "Give the trace of one."
)
WEIGHT_GRADIENTS_UNKNOWN = error(
    "The trace doesn't tell which GEMMs compute weight gradients.", "Record with record_shapes=True."
)
INTERLEAVING_INDIVISIBLE = error(
    "{micro_batches} micro-batches can't be interleaved over {stages} stages.",
    "Take a multiple of the stages, or {--pp-schedule} 1f1b.",
)
SCHEDULE_TOO_LARGE = error("{micro_batches} micro-batches over {stages} stages are too many to be scheduled.")
LAYERS_INDIVISIBLE = error("{layers} layers can't be split over {stages} stages of {chunks:count chunk}.")

LINKS_UNKNOWN = error(
    "{layout} on {target}: the links between them aren't known.",
    "Name a cluster in its place, such as {--cluster} {suggestion}.",
)
CLUSTER_TOO_SMALL = error(
    "{layout} don't fit on {cluster}, which has {gpus:count GPU}.",
    "Name a larger cluster, or predict a job that fits: {--world-size} {fitting}.",
)
CLUSTER_SMALLER_THAN_REPLICA = error(
    "{layout} don't fit on {cluster}, which has {gpus:count GPU}.",
    "Name a larger cluster, as one replica of the job has {ranks:count rank}.",
)
NO_TARGET_PREDICTED = error("{reasons:sentences}")
TARGET_REFUSED = error("{target}: {reason}")
NO_LAYOUT_PREDICTED = error("None of the layouts can be predicted: {reason}")
REPLICA_TOO_LARGE = error("{gpus:count GPU} can't hold {ranks} ranks, one replica")
GPU_NAME_IS_CLUSTER = error("{name} is a cluster, no GPU.", "Its GPU is {gpu}; {--cluster} {name} means all of it.")
SOURCE_CLUSTER_OF_OTHER_GPU = error("{--source-cluster} {cluster} has {gpu}, the trace {source_gpu}.")
SOURCE_CLUSTER_TOO_SMALL = error("{--source-cluster} {cluster} has {gpus:count GPU}, the trace {ranks:count rank}.")

name_templates(globals())
