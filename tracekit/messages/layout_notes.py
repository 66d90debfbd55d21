"""Notes of a prediction in another layout: inserted collectives, and waiting for the slowest rank."""

from tracekit.messages.model import name_templates, note

DDP_INSERTED = note(
    "The trace has no gradient all-reduces: those of DistributedDataParallel were inserted, for {gradients:count "
    "gradient} of {dtypes:list} with {gradient_bytes} once an optimizer step, in {allreduces:count all-reduce} that "
    "overlap the backward pass (buckets of 25 MiB, the first of 1 MiB). The CPU needs {copy_us} for each gradient "
    "that is copied in or out, as for the trace's own ops, and {launch_us} for each all-reduce; the interval allows "
    "for a CPU {host_pct} slower or faster. Data parallelism from a one-GPU trace was checked against published "
    "throughputs only."
)
DDP_EXPERTS_APART = note(
    "{whole} {expert_bytes} of these gradients are of experts: only ranks with the same experts exchange them."
)
FSDP_INSERTED = note(
    "The trace has no FSDP: the collectives of fully_shard were inserted, for {layers:count layer} of {layer_bytes} "
    "in {dtype} and {rest_bytes} besides. A layer is gathered before its forward and again before its backward pass, "
    "up to {layers_ahead} ahead; its gradients are reduce-scattered after it. Each collective costs the CPU "
    "{launch_us}, derived from the trace's own ops; the interval allows for a CPU {host_pct} slower or faster. FSDP "
    "from a one-GPU trace was checked against published throughputs only."
)
FSDP_EXPERTS_APART = note(
    "{whole} Each layer has {expert_bytes} of experts in addition, which only ranks with the same experts shard."
)
FSDP_STAGES_INSERTED = note(
    "Stages shard their parameters as torchtitan's do (fully_shard, which keeps what it gathered until the step's "
    "last backward pass): its collectives were inserted, for {layers:count layer} of {layer_bytes} in {dtype} and "
    "{rest_bytes} besides. Parameters are gathered once a step, before a stage's first micro-batch, and gradients are"
    " reduce-scattered after its last one. Megatron-LM's distributed optimizer, and DeepSpeed's ZeRO-1 with "
    "pipelines, move as much. Each reduce-scatter costs the CPU {launch_us}, derived from the trace's own ops; the "
    "interval allows for a CPU {host_pct} slower or faster. FSDP with pipelines was checked against one published "
    "pair only."
)
FSDP_STAGES_REPLACED = note(
    "{whole} The trace's own all-gathers and reduce-scatters were left out; their copies and launches are in every "
    "micro-batch, as recorded."
)
TENSOR_PARALLEL_INSERTED = note(
    "The trace has no tensor parallelism: Megatron-LM's all-reduces were inserted, {allreduces:number} a step with "
    "{message_bytes} in all, one after each block in the forward and backward pass, as NCCL's kernels run them. "
    "{host_cost} Embeddings and the loss stay as they are."
)
TENSOR_PARALLEL_INFERENCE_INSERTED = note(
    "The trace has no tensor parallelism: Megatron-LM's all-reduces were inserted, {allreduces:number} a step with "
    "{message_bytes} in all, one after each block, as the faster of serving engines' own kernels and NCCL's run them."
    " {host_cost} Embeddings and the loss stay as they are."
)
EXPERT_PARALLEL_INSERTED = note(
    "The trace has no expert parallelism, and {experts:count expert} a layer: Megatron-LM's all-to-alls were "
    "inserted, {alltoalls:number} a step with {message_bytes} in all, one before and one after each MoE layer, "
    "forward and backward, with a token for each expert that it is routed to. Each rank has its part of the experts, "
    "which get tokens from every rank. Load imbalance between experts isn't in the numbers; at the interval's high "
    "end experts take as long as before, though fewer weights are read. {host_cost}"
)
INSERTED_HOST_COST = note("Each costs the CPU {launch_us}; the interval allows for a CPU {host_pct} slower or faster.")
INSERTED_WITHOUT_HOST_COST = note("They run in CUDA graphs, or cost the CPU nothing, as what they follow.")

STRAGGLERS_AS_PUBLISHED = note(
    "{after} data-parallel ranks are assumed to be {slower_pct:.1f} % slower than {before}, by their slowest one, at "
    "most {max_slower_pct}: one rank doesn't tell how the others differ, and published jobs lost {doubling_pct:g} % "
    "with each doubling beyond {node_ranks}, half of that up to there.",
    "Give the traces of several ranks to measure it.",
)
STRAGGLERS_AS_MEASURED = note(
    "The slowest of {after} ranks is assumed to be {slower_pct:.1f} % later than the slowest of {before}, at most "
    "{max_slower_pct}: {spread}."
)
FEWER_STRAGGLERS = note(
    "The slowest of {after:count rank} may come up to {earlier_pct} earlier than the slowest of {before}, which the "
    "interval's lower end allows for: {spread}."
)
SPREAD_OF_RANKS = note(
    "over {ranks:count rank} computing varies by {compute_pct:.1f} % of a step, all but waiting by {own_pct:.1f} %"
)
SPREAD_OF_STEPS = note(
    "over the steps of the one rank read computing varies by {compute_pct:.1f} % of a step, all but waiting by "
    "{own_pct:.1f} %"
)
SPREAD_UNKNOWN = note(
    "The numbers don't include that the slowest of {more} ranks is slower than the slowest of {fewer}: too few ranks "
    "and steps were read to measure their spread."
)

name_templates(globals())
