"""Predictions: their assumptions, what decides between targets, and what corrects them."""

from tracekit.messages.model import error, name_templates, note, warning

JOB_LAYOUT = note("Layout: {layout}.")
BATCH_PER_RANK_KEPT = note("Each rank keeps its batch: the job's batch is {replicas} times a rank's.")
BATCH_PER_RANK_EQUAL = note("All ranks have the same batch: the job's batch is {replicas} times a rank's.")
SWEEP_KEEPS_BATCH = note("Each rank keeps its batch: the job's batch grows with its data-parallel ranks.")
SWEEP_KEEPS_MICRO_BATCH = note(
    "Each rank keeps its batch: the job's batch grows with its data-parallel ranks. With pipeline stages each "
    "micro-batch is as large as a traced pass."
)
BATCH_SCALED = note(
    "Each step has {batch_ratio:g} times the batch: all sizes in the kernels' shapes grow but those of parameters; "
    "the CPU's work stays, a data loader's too. Speedups are per sample."
)
CONTEXT_CHANGED = note(
    "Each sequence of the decode batch sees {keys:,} keys: only attention changes. Memory for their cache isn't "
    "counted."
)
UNLIKE_GPUS_PACE = note("{gpus} x {name} set the pace: {waits:list}.")
UNLIKE_GPUS_WAIT = note("{gpus} x {name} wait {idle_us}, {idle_pct} of each step")
UNLIKE_GPUS_BALANCED = note("Work is shared by speed: {shares:list}.")
UNLIKE_GPUS_SAMPLES = note("{samples:g} samples on each {name}")
UNLIKE_GPUS_SHARE = note("stages of {layers:list} layers on {name}")
UNLIKE_GPUS_BALANCE_GAINS = note(
    "Shared by speed, the same batch would take {shared_us} a step, or somewhat more.", "Share it with {--balance}."
)
UNLIKE_GPUS_ALIKE = note("With {name} alone, as many of them would take {whole_us} a step.")
GPU_NAME_AMBIGUOUS = note("{name!r} was taken as {gpu}; there is also {others:list}.")
GPU_IN_LAPTOP = note(
    "The laptop is assumed to give its GPU {power_w:.0f} W, the most there is: with less the GPU is slower."
)
GPU_UNLIKE_KNOWN = warning(
    "{gpu} is more than {ratio:g} times beyond all known GPUs in {figures:list}: predictions are extrapolated, and may "
    "be off by any factor.",
    "Check these figures and their units.",
)
GPU_ALSO_REQUESTED = note(
    "{gpu} was also requested by itself and is predicted on {target} only.",
    "Without {--cluster} its collectives stay as measured.",
)
SOURCE_GPU_UNKNOWN = note(
    "The source GPU is unknown: kernels with shapes are predicted without their measurement, others keep theirs.",
    "Name it with {--source-gpu}.",
)
DTYPE_UNSUPPORTED = note(
    "{gpu} has no {dtype}, so the program doesn't run there as is: {time_pct} of kernel time is estimated in {runs_as}."
)
ATTENTION_BUILT_FOR_A100 = note(
    "FlashAttention 2 ({time_pct} of kernel time there) is written for an A100 and reaches at most {rate_pct} of what "
    "the tensor cores of {gpu} can do; at all of it the step would be {saves_us} shorter.",
    "Shorten these kernels with cuDNN's attention, or FlashAttention 3 (Hopper) or 4 (Blackwell).",
)
TARGET_PREDICTED_TOO_FAST = note(
    "{pairs} published throughputs predicted for {gpu} from other kinds of GPU were {bias_pct} too fast in the "
    "median, the worst by {worst_pct:+.0f} %. With kernels as much longer, this step takes {step_us}; perhaps it is "
    "less, as a trace has the time outside of kernels, which published throughputs lack."
)
TARGET_PREDICTED_TOO_SLOW = note(
    "{pairs} published throughputs predicted for {gpu} from other kinds of GPU were {bias_pct} too slow in the "
    "median, the worst by {worst_pct:+.0f} %. With kernels as much shorter, this step takes {step_us}; perhaps it is "
    "less, as a trace has the time outside of kernels, which published throughputs lack."
)
KERNELS_CONTEND = note(
    "{overlap_pct} of the kernels' time overlaps other kernels: a step takes {apart_us}, as shown, if each keeps its "
    "time, and {contended_us} with contention, by a simple model."
)
CONTENTION_LEFT_OUT = note(
    "{overlap_pct} of the kernels' time overlaps other kernels: a step takes {apart_us}, as shown, if each keeps its "
    "time. With contention it takes longer, which isn't worked out rank by rank.",
    "Without {--engine} it is.",
)
EDITS_APPLIED = note("Predicted with {edits:list}.")
HOST_TIME_KEPT = note(
    "The CPU's own work is assumed to take as long as measured; the interval allows for a CPU {host_pct} slower or "
    "faster, which changes the step by up to {longer_us}.",
    "{--host-speed} changes it.",
)
HOST_NOT_GIVEN = note(
    "The target's CPU isn't known: its own work may take {low_ratio:.2g} to {high_ratio:.2g} times as long as "
    "measured, which changes the step by up to {longer_us}.",
    "{--host} same is a CPU like the trace's.",
)
HOST_STACK_CHANGES = note(
    "The CPU's own work is carried from {source} to {target}, whose software is another: it may take {low_ratio:.2g} "
    "to {high_ratio:.2g} times as long as likely, which changes the step by up to {longer_us}."
)
CPU_BY_LAW = note(
    "On {cpu} one op runs after the other with {cores} threads, and what PyTorch does between them counts as theirs. "
    "Their times are a law's, fitted to few CPUs.",
    "A torch.profiler trace of the step on a CPU, with {--source-gpu} naming that, narrows them.",
)
CPU_MEASURED = note(
    "On {cpu} one op runs after the other with {cores} threads, and what PyTorch does between them, up to 0.2 ms, "
    "counts as theirs; longer pauses, such as for a data loader, are left out."
)
UNKNOWN_TIME_VARIES = note(
    "For {shorter_us} of the step the trace doesn't say what the GPU did or waited for. The interval reaches from none "
    "of it, a step of {least_us}, to all of it.",
    "`tracekit doctor` says what to record.",
)
HOST_OPEN = note(
    "The target's CPU isn't known, and it changes the step. The interval holds {machines} known machines with such "
    "GPUs, whose CPU takes {low_ratio:.2g} to {high_ratio:.2g} times as long as measured. With one like the trace's, "
    "{speed_ratio:.2g} times as fast as the usual one by {ops} ops, the step takes {same_low_us} to {same_high_us}.",
    "{--host} same, a known host's name or {--host-from} narrows it.",
)
POWER_CAPPED = note(
    "Under {power:g} W instead of {limit:g} W, kernels take {slowdown_pct:.0f} % longer: the clock falls where they "
    "would draw more. How far was fitted to training steps on four GPUs up to 2020."
)
POWER_CAP_WITHOUT_EFFECT = note("{power:g} W is no limit for a {gpu}, whose board is limited to {limit:g} W.")
CLOCK_FIXED = note(
    "At {clock:g} MHz instead of up to {highest:.0f} MHz, kernels take {slowdown_pct:.0f} % longer; those that wait "
    "for memory don't. This wasn't checked against measurements."
)
CLOCK_FIXED_WITHOUT_EFFECT = note("{clock:.0f} MHz is no limit for a {gpu}, which runs at {highest:.0f} MHz at most.")
CLOCK_LOWERED = note(
    "At its boost clock the step would draw {demand:.0f} W, more than the {limit:g} W of a {gpu}: its clock falls to "
    "{clock_pct:.0f} %, and its kernels take {longer_pct:.1f} % longer, those on the tensor cores most. This is in the "
    "times."
)
HOST_OF_CAPTURE = note(
    "The CPU is {host}: it takes {low_ratio:.2g} to {high_ratio:.2g} times as long for a kernel as expected, by how "
    "programs and machines differ. {--host} names another one, {--cuda-graph} leaves it out."
)
HOST_CHANGED = note(
    "The CPU's own work is predicted to take {time_ratio:.2g} times as long as measured ({low_ratio:.2g} to "
    "{high_ratio:.2g}), for {--host} {host}: by {ops} ops, the trace's host has {speed:.2g} times the speed of the "
    "reference host."
)
PROFILER_COST_KNOWN = note(
    "{host_pct} of this step waits for the CPU, which the profiler slows: without it the step would take {step_us}.",
    "{--unprofiled-step} {without_us:milliseconds} takes the profiler's cost out.",
)
PROFILER_COST_RECORDED = note(
    "{host_pct} of this step waits for the CPU, which the profiler slows: {recorded_us} a step are its own recorded "
    "work, and recording {recorded:list} takes time that the trace doesn't note.",
    "Time a step without the profiler, and give that time: {--unprofiled-step}.",
)
PROFILER_COST_UNKNOWN = note(
    "{host_pct} of this step waits for the CPU, which the profiler slows: recording {recorded:list} takes time that "
    "the trace doesn't note.",
    "Time a step without the profiler, and give that time: {--unprofiled-step}.",
)
CALIBRATION_USED = note("Calibrated with {label}: {families:list}.", "{--no-calibration} leaves it out.")
CALIBRATION_OF_OTHER_GPU = note(
    "Kept consistent with {gpu}, which is calibrated.", "{--no-calibration} leaves that out."
)
PRICE_MISSING = note("No price is known.", "Give it with {--price} GPU=DOLLARS.")

CLUSTER_PARTLY_USED = note("The job uses {ranks} of the cluster's {gpus:count GPU}.", "{--world-size} changes it.")
NODE_TOO_LARGE = note(
    "{cluster} has {gpus} GPUs on the fast links of one node, and known nodes of {gpu} have at most {known_gpus}.",
    "{nodes} of these are {suggestion}, or whatever their network is.",
)
COLLECTIVES_KEPT = note(
    "Collectives ({time_pct} of the measured kernel time) are kept as measured; nothing else runs for {alone_us} of "
    "the step. The interval holds from none of their time to {factor:g} times as much.",
    "Name the links with {--cluster}.",
)
LINKS_ASSUMED = note(
    "Collectives ({time_pct} of the measured kernel time) are predicted over the links of {cluster}, the usual nodes "
    "of that GPU, and within what other nodes have.",
    "Name the real ones with {--cluster}.",
)
SOURCE_CLUSTER_UNKNOWN = note(
    "The source cluster is unknown, because {reason}: collectives take the model's time, not the measured time "
    "multiplied by the model's ratio.",
    "Name it with {--source-cluster}.",
)
SOURCE_CLUSTER_WITHOUT_GPU = note("its GPU is unknown")
SOURCE_CLUSTER_WITHOUT_NETWORK = note("the network of {ranks:count rank} on {nodes:count node} is unknown")
SOURCE_CLUSTER_ASSUMED = note(
    "The source cluster is assumed to be {cluster}: {nodes:count usual node} of its GPU.",
    "Correct it with {--source-cluster}.",
)
SOURCE_CLUSTER_FROM_HOSTS = note(
    "The source cluster is {cluster}, by the names of {hosts:count host}.", "Correct it with {--source-cluster}."
)
CLUSTER_MEASURED = note("Collectives on {cluster} follow {measurements:count measurement} in its file.")
PEER_ACCESS_MISSING = note(
    "{gpu}s have no peer-to-peer access: their messages are assumed to go through host memory at a fifth of PCI "
    "Express's rate, on good servers half.",
    "If they have, write peer_access = true into a cluster's file.",
)
COLLECTIVES_SLOWER_THAN_LINKS = note(
    "Collectives took {beyond_us} a step more than the trace's links explain. That time is kept as measured, whether "
    "it was waiting for other ranks or contention with other kernels."
)
COLLECTIVE_SIZES_INFERRED = note(
    "{time_pct} of the collectives' time has no message size: it is inferred from launches and durations."
)
COLLECTIVES_UNPREDICTED = note(
    "{time_pct} of the collectives' time can't be predicted and is kept as measured. The interval holds from none of "
    "it to {factor:g} times as much."
)

PIPELINE_USED = note(
    "Pipeline: {pipeline}. Stages wait for others for {bubble_pct} of the step (the bubble). Kernels and timelines "
    "are shown of all stages on one GPU.",
    "{--micro-batches} and {--pp-schedule} change it.",
)
STAGES_UNEVEN = note(
    "The slowest stage works {work_ratio:.1f} times as long as the mean one: layers are split evenly, and what comes "
    "before the first and after the last layer stays on the end stages."
)
STAGE_GATHERS_EXPOSED = note(
    "The mean stage waits {gather_us} a step for its parameters, which it gathers once its first input has come, up "
    "to {layers_ahead} layers ahead. At the interval's low end only the first stage waits."
)
MICRO_BATCH_SCALED = note(
    "A micro-batch is {size_ratio:g} times as large as a traced pass: the job's batch is {batch_ratio:g} times a "
    "rank's in the trace."
)
STAGE_SENDS = note(
    "Stages send each other {message_bytes} a micro-batch, derived from the layers' GEMMs, in {send_us}. Of that, "
    "{latency_us} is latency, as in published pipelines; the interval allows for {latency_ends_us:interval}."
)

INSERTED_EXPOSED = note("The inserted collectives take {inserted_us} a step, during which nothing else runs.")
INSERTED_OVERLAPPED = note(
    "The inserted collectives take {inserted_us} a step; for {exposed_us} of it nothing else runs."
)
INSERTED_SLOW_KERNELS = note(
    "The inserted collectives take {inserted_us} a step; for {exposed_us} of it nothing else runs, and kernels that "
    "overlap the rest are assumed to lose {lost_pct} of the GPU, {slower_us}, at most {max_lost_pct}."
)

MEMORY_FITS = note("The job fits into memory: {reason}.")
MEMORY_TOO_SMALL = note("The job doesn't fit into memory: {reason}.")
MEMORY_UNCERTAIN = note("The job may or may not fit into memory: {reason}.")
MEMORY_LOWER_BOUND = note("it needs at least {min_bytes} of {usable_bytes}")
MEMORY_UPPER_BOUND = note("it needs at most {max_bytes} of {usable_bytes}")
MEMORY_BOUNDS = note("it needs at least {min_bytes} and at most {max_bytes} of {usable_bytes}")
MEMORY_BOUND_BELOW_ONLY = note(
    "it needs at least {min_bytes} of {usable_bytes}, and the trace doesn't tell how much more"
)
MEMORY_UNKNOWN = note("the trace doesn't tell how much of {usable_bytes} it needs")
MEMORY_AS_TRACED = note("it ran in the {source_bytes} of the trace's GPU")
MEMORY_RECORDED = note("it took {allocated_bytes} of tensors, {reserved_bytes} reserved; {usable_bytes} are usable")
SEQUENCE_LONGEST = note(
    "The longest sequences that surely fit, of a multiple of 64 tokens and no more than the config has positions for, "
    "are of {tokens:count token}."
)
ATTENTION_OF_CAPTURE = note("Attention is computed by {kernels}.", "{--attention} chooses another way.")
ENGINE_OF_CAPTURE = note(
    "These are the kernels that {engine} launches, without its scheduler, sampling of requests and detokenising, which "
    "take the CPU {host_us} a step ({host_ends_us:interval}), by what is public of such steps, and on one machine "
    "{seen_us}. The GPU takes {gpu_us}: {pace}."
)
CACHE_OF_CAPTURE = note(
    "How long attention takes to read a cache in {cache} wasn't measured: its time is that of the bytes, and the "
    "interval holds up to twice as much, for unpacking."
)
PACE_BY_GPU = note("the GPU sets the pace")
PACE_BY_CPU = note("the CPU sets the pace, and a step lasts as long as its time")
PACE_LIKELY_BY_GPU = note("the GPU likely sets the pace, but by both intervals the CPU may")
PACE_LIKELY_BY_CPU = note(
    "the CPU likely sets the pace, and a step lasts as long as its time; by both intervals the GPU may"
)
RECURRENCE_OF_CAPTURE = note(
    "Recurrent layers run as cuDNN's standard algorithm does, a GEMM and a pointwise kernel for each step in time, one "
    "after the other. cuDNN may run layers and directions side by side, so these times may be half as long or twice."
)
LEFT_OUT_OF_CAPTURE = note(
    "The step lacks what the program's description has, as no option or known form of inputs says it: {things:list}."
)
QUANTIZATION_OF_CAPTURE = note(
    "The linear layers hold weights of fp8 (e4m3), and cast their inputs to it, as the config says ({method})."
)
PRECISION_OF_CAPTURE = note(
    "Products of linear layers and experts run in {precision}, those of both gradients too, and each operand is cast "
    "once; attention, routers, norms and the output head stay as they are."
)
STACK_OF_CAPTURE = note(
    "The job runs on {stack}: {fusion}. The GPU's work takes {ratio:.2f} times as long as the captured kernels do, as "
    "in few published jobs of that framework."
)
STACK_UNFUSED = note("the model's kernels as its code and {--compile} have them")
STACK_FUSED = note("what lies between products is one kernel, and CUDA graphs launch them all")
EXPERTS_OF_STACK = note(
    "How a job exchanges tokens between experts, what it hides behind other work and what it fuses isn't told: one job "
    "took 20 to 46 s a step by such settings. The interval of the GPU's work allows for it: {low:.2f} to {high:.2f} "
    "times as long."
)
STACK_UNKNOWN = note(
    "Which framework trains the model isn't told, which the interval allows for: {low:.2f} to {high:.2f} times as "
    "long. {--stack} narrows it."
)
MEMORY_CAPTURED = note(
    "its tensors take {peak_bytes} at once, beside the workspaces of kernels; {usable_bytes} are usable"
)
MEMORY_CAPTURED_SCALED = note(
    "its tensors take {min_bytes} to {max_bytes} at once, beside the workspaces of kernels; {usable_bytes} are usable"
)
MEMORY_STAGES = note(
    "of {stages} stages the fullest, number {stage} from 0, takes {max_bytes} at once, beside the workspaces of "
    "kernels: {state_bytes} of parameters, gradients and optimizer state, and activations of {passes:number} passes "
    "through its layers; the leanest takes {leanest_bytes}; {usable_bytes} are usable"
)
MEMORY_STAGES_SCALED = note(
    "of {stages} stages the fullest, number {stage} from 0, takes {min_bytes} to {max_bytes} at once, beside the "
    "workspaces of kernels: {state_bytes} of parameters, gradients and optimizer state, and activations of "
    "{passes:number} passes through its layers; the leanest takes {leanest_bytes}; {usable_bytes} are usable"
)
MEMORY_RECORDED_PLUS_BUCKETS = note(
    "it took {allocated_bytes} of tensors, {reserved_bytes} reserved, and gradient buckets add up to {buckets_bytes};"
    " {usable_bytes} are usable"
)


TARGET_DECIDED = note("{target:words}: {answers:sentences}")
"""The first of the answers is the speed."""

LAYOUT_THERE = note("as {layout}")
BATCH_THERE = note("with {batch_ratio:g} times the batch, per sample")
BATCH_OF_PROGRAM = note("with {batch_ratio:g} times the program's batch")
EDITS_THERE = note("with the what-if edits")
WORK_TO_LOSS = note("with {ratio:.3g} times the {unit} to the same loss, as a batch of {batch:,.4g} needs")
CRITICAL_BATCH_ASSUMED = note(
    "Larger batches are taken to need more {unit} to the same loss by the gradient noise scale of {critical:,.4g}: "
    "E_min (1 + B / B_noise), with a learning rate tuned for each (McCandlish et al. 2018). The scale grows while a "
    "loss falls, and nothing here was measured on this job.",
)

SPEED_HIGHER = note("{speedup:range} times as fast (most likely {speedup:likely}).")
SPEED_MAYBE_HIGHER = note("{speedup:range} times as fast (most likely {speedup:likely}), so that it may be no faster.")
SPEED_LEVEL = note("about as fast ({speedup:range} times).")
SPEED_AS_MEASURED = note("as fast as measured.")
SPEED_MAYBE_LOWER = note(
    "takes {slowdown:range} times as long (most likely {slowdown:likely}), so that it may be no slower."
)
SPEED_LOWER = note("takes {slowdown:range} times as long (most likely {slowdown:likely}).")
SPEED_WITH_SAME_CPU = note("With a CPU like yours: {speedup:range} times as fast.")
SLOWNESS_WITH_SAME_CPU = note("With a CPU like yours: {slowdown:range} times as long.")
STEP_OF_CAPTURE = note("a step takes {step_us} ({ends_us:interval}).")

COSTS_MORE = note(
    "At {price:price} an hour it costs {more_pct:likely} % more per {unit} ({more_pct:range} %) than {here} at "
    "{here_price:price}; it is cheaper below {break_even:dollars} an hour ({break_even:dollar_range})."
)
COSTS_LESS = note(
    "At {price:price} an hour it costs {less_pct:likely} % less per {unit} ({less_pct:range} %) than {here} at "
    "{here_price:price}; it is cheaper below {break_even:dollars} an hour ({break_even:dollar_range})."
)
COSTS_UNDECIDED = note(
    "At {price:price} an hour it may cost more or less per {unit} than {here} at {here_price:price}: it is cheaper "
    "below {break_even:dollars} an hour ({break_even:dollar_range})."
)
PAYS_BELOW = note(
    "It is cheaper than {here} at {here_price:price} below {break_even:dollars} an hour ({break_even:dollar_range})."
)
COSTS_ALONE = note("At {price:price} an hour, {amount:,} {units} cost {dollars:dollars} ({dollars:dollar_range}).")
COSTS_TIMES = note(
    "At {price:price} an hour it costs {ratio:likely} times as much per {unit} ({ratio:range}) as {here} at "
    "{here_price:price}; it is cheaper below {break_even:dollars} an hour ({break_even:dollar_range})."
)
RENTED_WHOLE = note(
    "It is rented whole, for {hourly:price} an hour: dollars count its {rented:count GPU}; the job uses {used}."
)
RENTED_GPUS = note("Its {rented:count GPU} cost {hourly:price} an hour.")
RUN_TAKES = note("{amount:amount} {units} take {hours:run_time} there, {here_hours:run_time} here.")
RUN_TAKES_THERE = note("{amount:amount} {units} take {hours:run_time}.")
RUN_COSTS = note("That costs {dollars:dollars} ({dollars:dollar_range}) there, {here_dollars:price} here.")
RUN_COSTS_THERE = note("That costs {dollars:dollars} ({dollars:dollar_range}).")
LACKS_MEMORY = note("The job doesn't fit into its memory.")
MAY_LACK_MEMORY = note("Whether the job fits into its memory isn't known.")

FIRST_BY_TIME = note("It is the fastest of {targets}.")
LEVEL_BY_TIME = note(
    "The fastest of {targets} targets can't be told: {others:list} may be it as well, by the intervals."
)
FIRST_BY_DOLLARS = note("It is the cheapest of {targets}.")
LEVEL_BY_DOLLARS = note(
    "The cheapest of {targets} targets can't be told: {others:list} may be it as well, by the intervals."
)
FIRST_BY_ENERGY = note("It takes the least energy of {targets}.")
LEVEL_BY_ENERGY = note(
    "Which of {targets} targets takes the least energy can't be told: {others:list} may as well, by the intervals."
)
STAY_FASTEST = note("It is faster on {here}: stay there.")
STAY_LIKELY_FASTEST = note("It is likely faster on {here}, where it ran.")
STAY_CHEAPEST = note("It is cheaper on {here}: stay there.")
STAY_LIKELY_CHEAPEST = note("It is likely cheaper on {here}, where it ran.")
CHEAPEST = note("Cheapest of the {places} with a price is {place}.")
CHEAPEST_OPEN = note("The cheapest can't be told: by the intervals it may be {places:list}.")
MORE_TARGETS = note("and {targets} more")
PRICES_DATED = note("Prices are of {date}.")


CALIBRATION_GPU_UNKNOWN = error("The trace doesn't say which GPU it was recorded on.", "Name it with {--gpu}.")
CALIBRATION_DEVICE_UNKNOWN = error("{reason}", "Name the GPU with {--gpu}, or describe it in a .toml file.")
CALIBRATION_UNHELPFUL = error(
    "These measurements sharpen nothing: predicted from each other, their kernels are farther off than before.",
    "Measure more kernels, on a GPU that is idle otherwise.",
)
CALIBRATION_WITHOUT_KERNELS = error("{path}: {reason}.")
CALIBRATION_NOT_FOUND = error("{gpu} isn't calibrated.", "`tracekit calibrate --list` shows what is.")
CALIBRATION_NOT_REMOVED = error("{path} can't be removed: {reason}.")
CALIBRATION_DAMAGED = error(
    "{path} is damaged: {reason}.",
    "Remove it with `tracekit calibrate --remove {gpu}`, or leave all out: {--no-calibration}.",
)
CALIBRATION_MISPLACED = error("It holds {kernels:count kernel} measured on {gpu!r}.")
BENCH_RESULT_INVALID = error(
    "{path}: not a result of the bench script: {reason}.",
    "`tracekit calibrate --bench` gives the script that makes one.",
)
BENCH_RESULT_TOO_LARGE = error(
    "{path} is larger than {limit_bytes}, which no result of the bench script is.",
    "`tracekit calibrate --bench` gives the script that makes one.",
)
BENCH_RESULT_UNREADABLE = error(
    "{path} can't be read: {reason}.", "`tracekit calibrate --bench` gives the script that makes one."
)


INTERVAL_WIDENED = note(
    "The interval is wider than the shipped {shipped:list}: of {outcomes:count kept outcome} of such predictions "
    "{inside} lay inside.",
    "{--no-scoreboard} leaves them out.",
)
INTERVAL_NARROWED = note(
    "The interval is narrower than the shipped {shipped:list}: of {outcomes:count kept outcome} of such predictions "
    "{inside} lay inside.",
    "{--no-scoreboard} leaves them out.",
)
SCOREBOARD_UNREADABLE = warning("The scoreboard can't be read: {reason}.", "`tracekit scoreboard` says where it lies.")
OUTCOMES_SKIPPED = warning(
    "{lines:count line} of the scoreboard skipped, which hold no outcome.", "`tracekit scoreboard` says where it lies."
)
OUTCOME_NOT_WRITTEN = error("The outcome can't be kept in {path}: {reason}.")
OUTCOME_NOT_SCORED = error(
    "Nothing is kept: it takes a prediction, saved with `tracekit predict -o prediction.json`, and the trace recorded "
    "since, of the same job on the predicted GPU."
)
FORECAST_MISSING = error(
    "Nothing is kept: {prediction} was saved by an earlier tracekit.", "Predict again with this one."
)
OUTCOME_KEPT = note("Kept in {path}; `tracekit scoreboard` shows all outcomes.")
OUTCOME_KNOWN = note("This outcome is kept already.")
OUTCOMES_UNREADABLE = error(
    "{path} holds no outcomes: {reason}.", "Give what `tracekit scoreboard --export outcomes.json` writes."
)
OUTCOMES_ADDED = note("{new:count outcome} of {given} added to {path}.")
LAW_OFFSETS = note(
    "Times of {families:list} are those of the laws by the factors that {jobs:count kept job} on a {gpu} tell; without "
    "each job's own, the others' bring its error from {before_pct:.0f} to {after_pct:.0f} %.",
    "{--no-scoreboard} leaves them out.",
)
SCOREBOARD_EMPTY = note("No outcome is kept yet.", "`tracekit compare prediction.json TRACE --keep` keeps one.")


BEST_LAYOUT = note(
    "Most is done by {ranks:count GPU} of {target} as {layout}: {speedup:range} times the traced job's throughput "
    "(most likely {speedup:likely})."
)
BEST_LAYOUT_ALONE = note(
    "Most is done by {ranks:count GPU} of {target} as {layout}: {per_second:range} {unit}/s (most likely "
    "{per_second:likely})."
)
CLUSTER_NUMBERED = note("{number} is {cluster}")
RANKS_THAT_HELP = note(
    "{cluster}: up to {ranks:count rank} each GPU keeps {kept_pct} of its throughput in the smallest layout"
)
TIED_LAYOUTS = note("≈ gets as much done as the line above, within {tied_pct:g} %, so that their order says nothing")
TIED_LAYOUTS_BY_PRICE = note("≈ gets as much done as the line above, within {tied_pct:g} %: cheaper ones come first")
STEPS_COUNTED = note("steps of a replica are counted, as the trace doesn't tell its batch: {--samples} N says a rank's")
UNFIT_LAYOUTS_LAST = note("what doesn't fit into memory comes last")
LAYOUT_FIT_UNKNOWN = note("?: the trace doesn't tell whether it fits into memory")
DOLLAR_COLUMNS = note("$/1k: dollars for 1,000 steps, of which larger layouts do more; $/1M: for a million {unit}")


GPU_FASTER = note("GPU {steps:list}, never below {floor_us}; {limit}")
CPU_FASTER = note("CPU {steps:list}, never below {floor_us}; {limit}")
NETWORK_FASTER = note("network {steps:list}, never below {floor_us}")
STEP_AT_SPEED = note("{speed:g}x {step_us}")
LIMIT_FROM_SPEED = note("from {speed:.2g}x on the {resource} is the limit")
LIMIT_ALREADY = note("the {resource} is the limit already")
STAYS_AT_ANY_SPEED = note(
    "whatever their speed, {kept_us} stay, {kept_pct} of the step: latencies, and waits and gaps that the trace "
    "doesn't explain"
)
LIMIT_KEPT = note("most of that stays as measured, it isn't the {resource}'s")
LIMIT_NEVER = note("the {resource} doesn't become the limit")


name_templates(globals())
