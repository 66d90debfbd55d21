"""Checks of a trace: what it holds, what a shortcoming costs a prediction, and how to mend it."""

from tracekit.messages.model import check, name_templates

GPU_TAKEN_AS = check("{name!r}, taken as {gpu}")
GPU_BLANK_TAKEN_AS = check("a blank name, taken as {gpu}")
GPU_NOT_DESCRIBED = check("not described (no deviceProperties)")
GPU_MISSING_COST = check("the kernels, {step_pct} of the step, are predicted without their measurement")
GPU_MISSING_COST_KEPT = check(
    f"{GPU_MISSING_COST.text}; those without known work, {{kept_pct}} of the step, stay as measured"
)
GPU_MISSING_FIX = check("name it with {--source-gpu} NAME (`tracekit gpus` lists them)")
CPU_ACTIVITY_COUNTS = check("{ops:count op}, {calls:count runtime call}")
CPU_OPS_MISSING_COST = check("{step_pct} of the step is known by kernel names only, and nothing tells what the CPU did")
CPU_CALLS_MISSING_COST = check("no kernel has a launch: the GPU's idle time stays as measured, whatever the GPU")
RECORDING_MISSING = check("none: a captured program, {measured_pct} of whose kernel time a trace measured")
RECORDING_MISSING_COST = check("{step_pct} of the step follows from shapes, and the CPU is the usual one")
RECORDING_MISSING_FIX = check("record it on any GPU")
SHAPES_RECORDED = check("recorded on {ops_pct} of {ops:count op}")
SHAPES_MISSING = check("not recorded")
SHAPES_MISSING_COST = check("{step_pct} of the step is scaled by kernel class instead of modelled from its work")
WORK_KNOWN = check("{time_pct} of kernel time has known work")
WORK_KNOWN_OUTSIDE_GRAPHS = check("{time_pct} of the time of kernels outside of CUDA graphs has known work")
WORK_KNOWN_EXCEPT = check("{time_pct} of kernel time has known work; the most without: {largest:list}")
WORK_UNKNOWN_COST = check("{step_pct} of the step is scaled by kernel class instead of modelled")
GRAPH_KERNELS_CAPTURED = check(
    "{kernels:count kernel} out of {launches:count graph launch}; the capture tells the ops of {captured}"
)
GRAPH_KERNELS_WITHOUT_OPS = check(
    "{kernels:count kernel} out of {launches:count graph launch}; nothing tells their ops"
)
GRAPHS_RECORDED_WHOLE = check(
    "{whole} of {launches:count graph launch} were recorded as a whole: what runs in them isn't known"
)
GRAPH_NODES_FIX = check("nsys profile --cuda-graph-trace=node")
GRAPH_KERNELS_COST = check("{step_pct} of the step has no shapes of its own: scaled by kernel class")
GRAPH_CAPTURE_FIX = check(
    "give the model's config.json too ({--model-config}), or the trace of the capture (vLLM: capture_torch_profiler, "
    "SGLang: --enable-profile-cuda-graph), or record some steps without graphs (enforce_eager, --disable-cuda-graph)"
)
IDLE_TIME_EXPLAINED = check("the GPU is idle for {idle_pct} of the step, all explained")
IDLE_TIME_IN_GRAPHS = check(
    "the GPU is idle for {idle_pct} of the step: {graph_pct} within CUDA graphs, the rest explained"
)
IDLE_TIME_UNEXPLAINED = check(
    "the GPU is idle for {idle_pct} of the step: {open_pct} for no recorded reason, the rest explained"
)
IDLE_TIME_SPLIT = check(
    "the GPU is idle for {idle_pct} of the step: {graph_pct} within CUDA graphs, {open_pct} for no recorded reason, "
    "the rest explained"
)
IDLE_TIME_COST = check("{step_pct} of the step likely stays as measured")
IDLE_IN_GRAPH_FIX = check(
    "record some steps without CUDA graphs (enforce_eager, --disable-cuda-graph, torch.compile without its mode "
    "reduce-overhead)"
)
IDLE_UNEXPLAINED_FIX = check("record several steps after a warm-up; leave out with {--steps} those that have it")
UNRECORDED_WORK_WAITED_FOR = check(
    "{waits:mean wait} of the CPU in a step, {time_us} together, went on after all recorded work of the GPU had ended"
)
UNRECORDED_WORK_COST = check(
    "what the GPU ran for {step_pct} of the step isn't in the trace: predictions of it are a guess"
)
UNRECORDED_WORK_FIX = check(
    "record fewer steps at once, as full buffers lose kernels, and without CUDA graphs that repeat parts"
)
COLLECTIVES_SIZED = check("{sized} of {collectives} have a message size")
COLLECTIVES_UNSIZED_COST = check("{step_pct} of the step is communication of unknown size")
COLLECTIVES_UNSIZED_FIX = check("record CPU ops with torch 2.2 or later: they note every collective's size")
TIMES_IN_ORDER = check("kernels start after their launch, and end in their stream's order")
TIMES_CORRECTED = check("{faults:sentences}")
TIMES_CORRECTED_COST = check("predictions rest on the corrected times")
TIMES_CORRECTED_FIX = check("record the trace again; if it comes back, update PyTorch and the driver")
STEPS_MARKED = check("{marked} marked, {measured} of them measured")
STEPS_WITHOUT_MARKS = check("no marks of steps: the whole trace counts as one step")
STEPS_WITHOUT_MARKS_SEVERAL = check(
    "no marks of steps: the whole trace counts as one step, though the optimizer ran {updates} times"
)
STEPS_WITHOUT_MARKS_COST = check("{step_pct} of it lies before or after all GPU work and counts as part of the step")
STEPS_MARK_FIX = check("{schedule} and profiler.step()")
ONE_STEP_MARKED = check("one step is marked")
ONE_STEP_COST = check(
    "nothing tells how steps vary, and this one counts from its own mark, not from the end of one before"
)
STEPS_SPREAD = check("{steps:count step} of {min_us} to {max_us}, median {median_us}")
STEPS_SPREAD_COST = check("the median step stands for steps that differ by ±{half_width_pct}")
STEPS_SPREAD_FIX = check("warm up longer, or choose like steps with {--steps} N:M")
WARM_UP_CALLS = check("{calls:count call} in the measured steps to allocate memory, load kernels or create streams")
WARM_UP_CALLS_FIRST_SLOW = check(
    "{calls:count call} in the measured steps to allocate memory, load kernels or create streams; the first step took"
    " {slowdown:.1f} times as long and is left out"
)
WARM_UP_CALLS_COST = check("{step_pct} of the step is warming up, and counts as every step's")
GPU_SPEED = check("{kernels:count kernel} of known work take {ratio:.1f} times what is usual on this GPU")
GPU_SPEED_COST = check(
    "all families do, from {min_ratio:.1f} ({fastest_family}) to {max_ratio:.1f} times ({slowest_family}): its clock "
    "was low, or others used it; {step_pct} of the step may be due to that, and predictions carry it to other GPUs"
)
GPU_SPEED_FIX = check("warm up longer, and see what throttles it (nvidia-smi -q -d PERFORMANCE, rocm-smi)")
KERNELS_UNLAUNCHED = check("{unlaunched} of {activities} GPU activities have no launch in the trace")
KERNELS_UNLAUNCHED_EARLY = check(
    "{unlaunched} of {activities} GPU activities have no launch in the trace, {early} of them began before the first "
    "call"
)
KERNELS_UNLAUNCHED_COST = check("{step_pct} of the step belongs to no step and no op, and waits for no CPU")
KERNELS_UNLAUNCHED_FIX = check("{schedule}: warm-up steps catch them")
GRAPH_REPLAYS_LACK_NODES = check("{incomplete} of {replays} replays lack {missing} kernels of their graph")
LAUNCHES_UNMATCHED = check("{lost} of {launches} launches have no kernel in the trace")
LAUNCHES_UNMATCHED_COST = check("work of the GPU, up to {step_pct} of the step, is missing and counts as idle time")
LAUNCHES_UNMATCHED_FIX = check("record fewer steps at once: full buffers lose kernels")
RECORDING_OPTIONS_OFF = check("no stacks, no modules, no memory")
RECORDING_OPTIONS_OFF_TIMED = check(
    "no stacks, no modules, no memory; a step takes {unprofiled_pct} of its time without the profiler"
)
RECORDING_OPTIONS_ON = check("{options:list} on; the GPU is idle for {idle_pct} of the step")
RECORDING_OPTIONS_ON_TIMED = check(
    "{options:list} on; a step takes {unprofiled_pct} of its time without the profiler; the GPU is idle for "
    "{idle_pct} of the step"
)
RECORDING_OPTIONS_COST = check("recording this lengthens the CPU's time, up to {step_pct} of the step")
SYNCS_RECORDED = check("{streams:count stream}, {syncs:count sync event}")
SYNCS_UNRESOLVED = check(
    "{streams:count stream}, {syncs:count sync event}, but none of {waits:count wait} names its stream"
)
SYNCS_UNRESOLVED_COST = check("waits between streams are inferred from times")
SYNCS_UNRESOLVED_FIX = check(
    "record with torch built for CUDA 12.8 or earlier: later ones lose the stream that is waited for"
)
SYNCS_UNNEEDED = check("{streams:count stream}: no sync events needed")
SYNCS_UNSUPPORTED = check(
    "{streams:count stream}; AMD's profiler records no sync events: waits are inferred from times"
)
SYNCS_MISSING = check("{streams:count stream}, no sync events")
SYNCS_MISSING_COST = check("waits of {step_pct} of the step, on other streams, are inferred from times")
SYNCS_MISSING_FIX = check("{option} (in experimental_config)")
REPLAY_ERROR = check("misses the measured step by {error_pct:+.1f} %")
REPLAY_ERROR_COST = check("the trace holds waits that no recorded or inferred dependency explains")
RANKS_ALL_READ = check("all {ranks} ranks")
RANKS_READ = check("{ranks_read} of {ranks} ranks")
RANKS_MISSING_COST = check("the others are assumed to arrive when a like rank does")
RANKS_ALONE_COST = check(
    "{step_pct} of the step runs only collectives; how much of it is waiting for other ranks can't be told"
)
RANKS_MISSING_FIX = check("record every rank, and name the folder with all their traces")
RANKS_LACKING_FIX = check("record these ranks again, fewer steps at once: full buffers lose kernels")
RANK_CHECKED = check("rank {rank}: {evidence}")
RANKS_CHECKED = check("rank {rank} and {more} more: {evidence}")
RANK_UNMEASURED = check("{reason}")
RANK_UNMEASURED_COST = check("the job's step can't be measured with it")

EVENTS_MISSING = check("{losses:sentences}")
EVENTS_MISSING_COST = check("about {lost_pct:.2g} % of what happened is missing")
EVENTS_UNCOUNTED_COST = check("what is missing counts as idle time")
EVENTS_MISSING_FIX = check("copy or record the file again")
RECORD_BATCHES = check("record a dozen batches or more, under load")
RECORD_WITH = check("{options:list}")

FORMAT_OF_TOOL = check("a trace of {tool}, which has no: {lacks:list}")
FORMAT_FIX = check("record with torch.profiler")

name_templates(globals())
