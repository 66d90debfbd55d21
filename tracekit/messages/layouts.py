"""Layouts of a job, clusters and sharded tables."""

from tracekit.messages.model import error, name_templates, note

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
EMBEDDING_TABLES = error(
    "The trace has embedding tables, which replicas would shard: their sizes aren't known, or tensor or pipeline "
    "parallel ranks are asked for.",
    "Record with record_shapes=True, and ask for {--dp} on a cluster.",
)
TABLES_FILL_NODES = error(
    "Embedding tables are sharded over whole nodes: {ranks} ranks don't fill nodes of {gpus_per_node} GPUs.",
    "Give {--dp} a multiple of {gpus_per_node}.",
)
TABLES_OVER_REPLICAS = error(
    "A recommender's tables are sharded over replicas of its dense layers, which nothing else splits.",
    "Leave out {--tp}, {--pp} and {--cp}; {--dp} takes all GPUs, and {--plan} tells how tables are split.",
)
PLAN_WITHOUT_TABLES = error(
    "A sharding plan needs embedding tables that one rank has whole, and a cluster whose ranks split them.",
    "Give a recommender's config or one GPU's trace of it, with {--cluster} and {--dp}.",
)
PLAN_UNREADABLE = error("{path} is no sharding plan: {reason}.", "`tracekit shard -o plan.json` writes one.")
PLAN_WITHOUT_TABLE = error("{path} has no table {table}.", "Its tables have to be those of the job, by their names.")
PLAN_IMPOSSIBLE = error("{path}: {table} can't be {way} on {ranks:count rank}; known are {known:list}.")
LOOKUPS_UNKNOWN = error("The trace has no look-ups in embedding tables that ranks could split.")
TABLES_SHARDED = note(
    "The {tables:count embedding table} are sharded, {ways}: the slowest rank needs {held_bytes} for its shards and "
    "looks up and updates for {busy_ratio:.2f} times the mean rank's time. The bottom MLP hides the exchange of sums, "
    "the forward pass that of the next batch's indices."
)
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
RANKS_DONT_FACTOR = error("{ranks:count rank} can't be laid out as dp {dp}{context} x tp {tp} x pp {pp}.")
EXPERT_PARALLEL_INDIVISIBLE = error("ep {ep} doesn't divide the {ranks:count rank} of a stage.")
SCHEDULE_UNKNOWN = error(
    "There is no schedule {name!r}.",
    "Give 1f1b, zero-bubble, interleaved, or interleaved:N with at least 2 chunks a stage.",
)
ADAPTERS_SPLIT = error(
    "How ranks split the frozen parameters beside the adapters can't be told from this model's layers.",
    "Leave out {--fsdp}, or {--lora}. {--dp}, {--tp} and {--pp} work.",
)
ADAPTERS_REDUCED = note(
    "Of an adapter, the side that its layer splits is split; the gradients of the other side, of which each rank has "
    "a part, are summed by one all-reduce of {message_bytes} behind the backward pass, as Megatron-LM does for "
    "parameters that all ranks have whole. {host_cost}"
)
MATRICES_SHARED = note(
    "The optimizer multiplies whole matrices, as Muon does: each of {ranks:count rank} updates as many of them as any "
    "other, with {exchanges:count exchange} of matrices. This wasn't compared with measurements."
)
SCHEDULE_WITHOUT_STAGES = error(
    "Micro-batches of a trace, and schedules, need pipeline parallelism.",
    "Give {--pp} too. A program that is captured accumulates gradients over micro-batches without it.",
)
SEQUENCE_PARALLEL_OF_ONE_RANK = error(
    "Sequence parallelism splits tokens over tensor-parallel ranks.", "Give {--tp} too."
)
RECORDED_TENSOR_PARALLEL_FIXED = error(
    "The exchanges of the trace's own tensor-parallel ranks can't be changed: they are as recorded.",
    "Leave out {--sequence-parallel}.",
)
RING_OF_ONE_RANK = error("Context-parallel ranks pass keys and values around in a ring.", "Give {--cp} too.")
CONTEXT_PARALLEL_RECURRENT = error(
    "Context parallelism can't split the sequences: recurrent layers pass a state from token to token.",
    "Take {--dp}, {--tp} or {--pp}.",
)
CONTEXT_PARALLEL_ATTENTION_UNKNOWN = error(
    "Context parallelism needs fused attention whose queries and keys are known.",
    "Record with record_shapes=True, or capture the model with {--attention} sdpa.",
)
CONTEXT_PARALLEL_INDIVISIBLE = error(
    "{queries:,} queries of a sequence can't be split evenly over {ranks} context-parallel ranks, of a causal mask in "
    "{chunks} chunks on each.",
    "Take a longer {--seq}, or other {--cp}; a decode batch takes {--dp} or {--tp}.",
)
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
    "{ep} ranks that split experts can't be made of whole replicas of {tp} tensor-parallel ranks.",
    "Give {--ep} a multiple of {tp}, or leave out {--tp}.",
)
EXPERTS_WITHOUT_SEQUENCE_PARALLEL = error(
    "{ep} ranks that split experts hold {tp} tensor-parallel ranks of each replica, which would all send the same "
    "tokens.",
    "Give {--sequence-parallel}, as Megatron-LM asks for, or {--ep} {tp}.",
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


DDP_INSERTED = note(
    "The trace has no gradient all-reduces: those of DistributedDataParallel were inserted, for {gradients:count "
    "gradient} of {dtypes:list} with {gradient_bytes} once an optimizer step, in {allreduces:count all-reduce} that "
    "overlap the backward pass (buckets of 25 MiB, the first of 1 MiB). The CPU needs {copy_us} for each gradient "
    "that is copied in or out, as for the trace's own ops, and {launch_us} for each all-reduce; the interval allows "
    "for a CPU {host_pct} slower or faster. Data parallelism from a one-GPU trace was checked against published "
    "throughputs only."
)
ZERO_INSERTED = note(
    "{whole} As the optimizer is sharded, these are reduce-scatters; each rank updates its part of the parameters, "
    "which one all-gather then brings together, with nothing beside it."
)
ZERO_WITHOUT_OPTIMIZER = error(
    "There is no optimizer's step to shard.", "Give {--optimizer} too, such as fused-adamw, or leave out {--zero}."
)
ZERO_WITH_FSDP = error("FSDP shards the optimizer already: it is ZeRO 3.", "Leave out {--zero} or {--fsdp}.")
RECORDED_REPLICAS_FIXED = error(
    "The trace's own data parallelism can't be given a sharded optimizer.", "Give a one-GPU trace."
)
ZERO_OF_ONE_RANK = error(
    "A sharded optimizer needs several data-parallel ranks.", "Give their number with {--dp} or {--world-size}."
)
DDP_COMPRESSED = note(
    "{whole} They are cast to {dtype} before their all-reduces and back behind them, as PyTorch's "
    "{dtype}_compress_hook does: {sent_bytes} are sent. What it costs in convergence isn't predicted: fp16 loses "
    "values below 6e-8 and above 65504, bf16 keeps 8 bits of each."
)
FSDP_COMPRESSED = note(
    "{whole} Gradients are cast to {dtype} for their reduce-scatters, as PyTorch's MixedPrecisionPolicy(reduce_dtype) "
    "does. What it costs in convergence isn't predicted."
)
DDP_QUANTIZED = note(
    "{whole} They are quantised to int8, and each rank gathers those of all {ranks}, as PyTorch's "
    "quantization_pertensor_hook does: {sent_bytes} a rank are sent. Of DDP's hooks this one keeps no error: what it "
    "costs in convergence isn't predicted."
)
DDP_FACTORED = note(
    "{whole} Each matrix is sent as two of rank {rank}, as PyTorch's powerSGD_hook does once it has begun: "
    "{sent_bytes} are sent. Its orthogonalisation isn't counted, nor what it costs in convergence: its paper "
    "(arXiv:1905.13727) reached the quality of plain SGD at rank 2 (ResNet-18) and 4 (an LSTM)."
)
DDP_SELECTED = note(
    "{whole} The largest {kept_pct} of the values are sent with their places, and each rank gathers those of all "
    "{ranks}: {sent_bytes} a rank. What it costs in convergence isn't predicted; Deep Gradient Compression "
    "(arXiv:1712.01887) kept the accuracy at 0.1 % with a warm-up and corrected momentum."
)
GRADIENTS_NARROW = error(
    "Nothing is left to compress: the gradients are {dtypes:list} already.", "Leave out {--gradient-compression}."
)
GRADIENT_COMPRESSION_UNKNOWN = error("{--gradient-compression} {compression!r} is unknown.", "Known are {known:list}.")
COMPRESSION_OF_ALL_REDUCES = error(
    "{--gradient-compression} is of DDP's all-reduces, and as fp16 or bf16 of FSDP's reduce-scatters; in {layout} "
    "gradients are exchanged otherwise.",
    "Leave it out, or {--zero}, {--ep}, and {--pp} beside {--fsdp}.",
)
COMPRESSION_WITH_AVERAGES = error(
    "{--gradient-compression} is of gradients; with {--sync-every} replicas send parameters.",
    "Leave out one of them.",
)
RECORDED_EXCHANGE_FIXED = error(
    "The exchange of the trace's own replicas can't be changed: it is as recorded.",
    "Give a one-GPU trace, or leave out {--gradient-compression} and {--sync-every}.",
)
EXCHANGE_OF_ONE_RANK = error(
    "{--gradient-compression} and {--sync-every} need several data-parallel ranks.",
    "Give their number with {--dp} or {--world-size}.",
)
AVERAGES_OF_WHOLE_REPLICAS = error(
    "With {--sync-every} each GPU is a whole replica, which {layout} has none of.", "Give {--dp} alone."
)
SYNC_WITHIN_EACH_STEP = error(
    "{--sync-within} is for replicas that average their parameters now and then.", "Give {--sync-every} too."
)
SYNC_WITHIN_INDIVISIBLE = error(
    "{dp} replicas can't be divided into groups of {within}.", "Take a divisor of {dp} for {--sync-within}."
)
EXCHANGE_OF_INFERENCE = error(
    "{--gradient-compression} and {--sync-every} change the exchange of a training job; this is inference.",
    "Leave them out.",
)
AVERAGES_WITHOUT_OPTIMIZER = error(
    "There is no optimizer's step behind which to average parameters.",
    "Give {--optimizer} too, such as fused-adamw, or leave out {--sync-every}.",
)
PARAMETERS_AVERAGED = note(
    "Replicas train apart, and average {parameter_bytes} of parameters every {every} steps behind the update, with "
    "nothing beside it (local SGD; PyTorch's PeriodicModelAverager). The step is the mean: each carries 1/{every} of "
    "that exchange. What it costs in convergence isn't predicted. DiLoCo reports a loss as good as synchronous "
    "training's with 8 replicas and 500 steps (arXiv:2311.08105), for one language model and data set; its outer "
    "optimizer's passes over the parameters aren't counted."
)
PARAMETERS_AVERAGED_NEAR = note("{whole} In each step {within} neighbouring replicas reduce gradients. {ddp}")
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
FSDP_FROZEN = note(
    "{whole} Beside the trained adapters {layer_bytes} of frozen parameters of each layer, and {rest_bytes} outside, "
    "are gathered and not scattered."
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
CONTEXT_PARALLEL_INSERTED = note(
    "Context parallelism was inserted: {gathers:number} all-gathers of keys and values before attention and "
    "{scatters:number} reduce-scatters of their gradients a step, with {message_bytes} in all, as PyTorch's and "
    "TransformerEngine's all-gather exchange. Ranks attend to equal parts of a causal mask. {host_cost} {--cp-ring} "
    "sends blocks beside attention; the keys that one layer gathers aren't counted in memory. Three published steps of "
    "torchtitan over 2, 4 and 8 such ranks took 0.98, 1.3 and 1.4 times as long as predicted, within the intervals."
)
CONTEXT_PARALLEL_RING = note(
    "Context parallelism was inserted: {gathers:number} times a step ranks pass keys and values around in a ring, and "
    "{scatters:number} times their gradients, with {message_bytes} in all, beside attention on what came before. "
    "Ranks attend to equal parts of a causal mask. {host_cost} Attention counts as one kernel, not one for each block "
    "with sums between; rings weren't compared with measurements."
)
SEQUENCE_PARALLEL_INSERTED = note(
    "The trace has no tensor parallelism: Megatron-LM's sequence parallelism was inserted, {reduce_scatters:number} "
    "reduce-scatters and as many all-gathers a step with {message_bytes} in all, as many bytes over each link as the "
    "all-reduces without it. Norms, residuals and dropout between blocks work on a rank's part of the tokens. "
    "{host_cost} Embeddings and the loss stay as they are; inputs that are gathered again behind the backward pass's "
    "products aren't counted."
)
BATCH_LARGEST = note(
    "The largest batch that surely fits on {target} is {samples:count sample} on each rank: one more may not."
)
BATCH_FIT_UNKNOWN = error(
    "Which batch fits on {target} isn't known: {reason}.", "Give a number of samples or a multiple with {--batch}."
)
MEMORY_FITS_AS = note("Over as many GPUs it would fit as {layouts:list}.")
MEMORY_FITS_NO_LAYOUT = note("No other layout over as many GPUs is known to hold it.")
BATCH_FITS_NOWHERE_HERE = error(
    "Not even one sample on each rank fits on {target}: {reason}. {proposal}",
    "Try more GPUs, {--fsdp}, {--tp}, {--recompute} or shorter sequences ({--seq}).",
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


CLUSTER_OF_UNLIKE_GPUS = error(
    "{name!r} has several kinds of GPUs, of which predictions and sweeps of a job know; here a cluster has one.",
    "Give each kind by itself.",
)
UNLIKE_GPUS_WITHOUT_NETWORK = error(
    "{name!r} has several kinds of GPUs, and {part!r} has no network to the others.",
    "End it in @eth100 or @ndr400, with the Gbit/s of each GPU.",
)
UNLIKE_GPUS_LEFT_OVER = error(
    "The layout has {ranks:count rank}, and {cluster} has {gpus} GPUs of several kinds: which of them it uses isn't "
    "known.",
    "Give {--world-size} {gpus}, or a cluster of as many GPUs as the job has.",
)
UNLIKE_GPUS_IN_GROUP = error(
    "{gpus} x {kind} of {cluster} don't hold whole {what} of {ranks:count rank}.",
    "Choose {option} so that each kind of GPU holds whole ones.",
)
UNLIKE_GPUS_RANK_BY_RANK = error(
    "Several kinds of GPUs in one job are predicted of ranks in memory.", "Leave out {--engine}."
)
UNLIKE_GPUS_WITHOUT_SAMPLES = error(
    "A batch of one sample a rank, or of an unknown number, can't be shared by speed.",
    "Give the job's samples with {--samples}, or more of them with {--batch}.",
)
UNLIKE_GPUS_OF_STAGES = error(
    "Several kinds of GPUs in one job take new stages or the trace's replicas, not stages that were recorded."
)
UNLIKE_GPUS_OF_UNLIKE_PROGRAMS = error(
    "Each kind of GPU of {cluster} would run a program of its own, such as look-ups in other tables: such ranks aren't "
    "replayed together.",
    "Give each kind by itself, or one {--plan} for all.",
)
CLUSTER_UNKNOWN = error(
    "Unknown cluster {name!r}: write it as 8xh100-sxm, as 4x8xh100-sxm@ndr400, or by its name.",
    "`tracekit clusters` lists all.",
)
CLUSTER_MISTYPED = error(
    "Unknown cluster {name!r}: write it as 8xh100-sxm, as 4x8xh100-sxm@ndr400, or by its name.",
    "Did you mean {similar:list}? `tracekit clusters` lists all.",
)
CLUSTER_OF_CPUS = error(
    "{cluster} is of CPUs, whose networks and collectives aren't known.",
    "Predict one: {--gpu} {cpu}; {cpu}:8 means eight of its cores.",
)
CLUSTER_GPU_AMBIGUOUS = error("Cluster {name!r}: {reason}")
CLUSTER_WITHOUT_NETWORK = error(
    "Cluster {name!r} has no network.", "Write it as {name}@ndr400, with the Gbit/s of each GPU."
)
CLUSTER_IS_ONE_NODE = error("Cluster {name!r} has no network: {slug!r} stands for one node.")
CLUSTER_NETWORK_UNREADABLE = error(
    "Cluster {name!r}: can't read the network {network!r}.",
    "Write one of {known:list} and the Gbit/s of each GPU, such as ndr400 or roce200.",
)
CLUSTER_SIZE_INVALID = error("Cluster {name!r} has {gpus:,} GPUs; it may have 1 to {largest:,}.")

CLUSTER_FILE_NOT_FOUND = error("{path}: no such file.")
CLUSTER_FILE_UNREADABLE = error("{path} can't be read: {reason}.")
CLUSTER_FILE_NOT_TOML = error("{path}: {reason}.")
CLUSTER_KEY_UNKNOWN = error("{path}: unknown key {key!r}; known are {known:list}.")
CLUSTER_KEY_MISSING = error("{path}: missing key {key!r}.")
CLUSTER_VALUE_TYPE = error("{path}: {key} must be of type {type}, not {value}.")
CLUSTER_VALUE_NEGATIVE = error("{path}: {key} must be finite and not negative, but is {value}.")
CLUSTER_VALUE_TOO_LARGE = error("{path}: {key} can be {largest:,} at most, not {value}.")
CLUSTER_VALUE_UNKNOWN = error("{path}: {key} must be one of {known:list}, not {value}.")
CLUSTER_FABRIC_WITHOUT_LINKS = error("{path}: {gpu} has no links of its own: its fabric is 'pcie', not {fabric!r}.")
CLUSTER_OVERSUBSCRIPTION_INVALID = error("{path}: oversubscription must be at least 1, which is none, not {value}.")
CLUSTER_PAIR_GBPS_MISPLACED = error("{path}: a mesh, and nothing else, needs pair_gbps, of the links between two GPUs.")
CLUSTER_WITHOUT_NODES = error("{path}: nodes, gpus_per_node and rented_gpus must be at least 1.")
CLUSTER_NETWORK_CONTRADICTORY = error("{path}: network, nics_per_node, nic_gbit and nodes don't go together.")
CLUSTER_SOURCE_MISSING = error("{path}: [sourced] names {name!r}, which is not in [sources].")

MEASURED_INCOMPLETE = error("{path}: [[measured]] needs collective, bytes, ranks, and either time_us or busbw_gbps.")
MEASURED_KEY_UNKNOWN = error("{path}: [[measured]] has an unknown key {key!r}; known are {known:list}.")
MEASURED_VALUE_INVALID = error("{path}: {key} of [[measured]] can't be {value}.")
MEASURED_COLLECTIVE_UNKNOWN = error("{path}: unknown collective {collective!r}; known are {known:list}.")
MEASURED_NODES_IMPOSSIBLE = error("{path}: [[measured]] has {ranks} ranks on {nodes} nodes, which can't be.")
MEASURED_WITHOUT_NETWORK = error("{path}: [[measured]] has {nodes} nodes, but the file has no network between them.")

ALGORITHM_UNKNOWN = error("Unknown algorithm {algorithm!r}.", "Take one of {known:list}.")
EXCHANGE_UNKNOWN = error("Unknown exchange {exchange!r}.", "Take one of {known:list}.")
COLLECTIVE_COLUMN_MISSING = error("The table of collectives has no column {column!r}.", "It needs {needed:list}.")
COLLECTIVE_COLUMN_TYPE = error("Column {column!r} must be numbers, not {type}.")
COLLECTIVE_VALUE_INVALID = error("{column} must be numbers from {least} on, not {value}.", "Ranks are whole numbers.")
COLLECTIVE_TOO_LARGE = error(
    "{collective} over {ranks:count rank} on {nodes:count node} doesn't fit on {cluster} ({cluster_nodes:count node} "
    "of {gpus_per_node:count GPU}).",
    "Name a larger cluster, or predict a job that fits: {--world-size} {cluster_gpus}.",
)


SHARDING_TABLES_MISSING = error(
    "There are no embedding tables to shard.",
    "Give a trace with look-ups recorded with shapes, a file of tables, or {--table}.",
)
TABLE_EXCEEDS_MEMORY = error(
    "The table {table!s:.60} doesn't fit: a rank needs at least {needed_bytes} for it and its sums, of {usable_bytes} "
    "usable.",
    "Take a smaller {--batch}, or a GPU with more memory.",
)
TABLES_EXCEED_MEMORY = error(
    "{tables:count table} with their optimizer's states take {needed_bytes}; with what a step's sums take beside them, "
    "they don't fit into {usable_bytes} of {ranks:count GPU}.",
    "Take more GPUs, a smaller {--batch}, or SGD.",
)
TABLES_EXCEED_HOST_MEMORY = error(
    "The {tables:count table} with the optimizer's states ({needed_bytes}) fit neither into the GPUs' memory nor into "
    "that of {nodes:count host} with {host_bytes} each ({told}).",
    "A host needs at least {host_needs_bytes}: if it has, write host_memory_gib into a cluster's file; or take more "
    "nodes.",
)
SHARDING_SKEW_ASSUMED = note(
    "How often rows of {tables:count table} are looked up isn't known: Zipf's law with 1.05 is assumed, and the "
    "intervals reach from even look-ups to 1.2.",
    "{--zipf} or :ALPHA of {--table} tells it.",
)
SHARDING_PLANS_EQUAL = note("Within {within_pct} of the first plan, too close to rank: {plans:list}.")
SHARDING_ON_HOST = note(
    "The weights of {tables:count table} lie in the hosts' memory: {taken_bytes} of {host_bytes} on the fullest host.",
    "Take more GPUs, and all are looked up in theirs.",
)
SHARDING_HOST_ASSUMED = note(
    "How much memory a host has isn't known: {host_bytes} are assumed, {times:g} times that of its GPUs.",
    "Write host_memory_gib into a cluster's file.",
)
SHARDING_UNREADABLE = error("{path} can't be read: {reason}.", 'Give JSON: a list of tables, or {{"tables": [...]}}.')
SHARDING_TABLE_MALFORMED = error(
    "Table {number} of {path} is wrong: {reason}.",
    "Give num_embeddings and embedding_dim; also name, pooling_factor, alpha, data_type, optimizer, feature_names.",
)
SHARDING_TRACE_TABLES_EQUAL = note(
    "The trace tells the number of tables, their rows, width and look-ups in all: those of one look-up count as equal.",
    "A file with the tables tells them one by one.",
)
SHARDING_TABLES_TOO_MANY = error("{path} has more than {most} tables.", "Give fewer.")
SHARDING_BATCH_MISSING = error(
    "The tables don't tell how many samples a rank takes in a step.", "Give {--batch}, such as 8192."
)
SHARDING_CLUSTER_MISSING = error(
    "There is no cluster to shard the tables over.", "Give {--cluster}, such as 8xh100-sxm."
)


name_templates(globals())
