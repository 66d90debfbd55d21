"""Checks of a trace: what it holds, what a shortcoming costs a prediction, and how to mend it."""

from tracekit.messages.model import Severity, Template

GPU_TAKEN_AS = Template("gpu-taken-as", Severity.CHECK, "{name!r}, taken as {gpu}")
GPU_BLANK_TAKEN_AS = Template("gpu-blank-taken-as", Severity.CHECK, "a blank name, taken as {gpu}")
GPU_NOT_DESCRIBED = Template("gpu-not-described", Severity.CHECK, "not described (no deviceProperties)")
GPU_MISSING_COST = Template(
    "gpu-missing-cost",
    Severity.CHECK,
    "the kernels, {step_pct} of the step, are predicted without their measurement",
)
GPU_MISSING_COST_KEPT = Template(
    "gpu-missing-cost-kept",
    Severity.CHECK,
    f"{GPU_MISSING_COST.text}; those without known work, {{kept_pct}} of the step, stay as measured",
)
GPU_MISSING_FIX = Template(
    "gpu-missing-fix",
    Severity.CHECK,
    "name it with {--source-gpu} NAME (`tracekit gpus` lists them)",
)
CPU_ACTIVITY_COUNTS = Template("cpu-activity-counts", Severity.CHECK, "{ops:count op}, {calls:count runtime call}")
CPU_OPS_MISSING_COST = Template(
    "cpu-ops-missing-cost",
    Severity.CHECK,
    "{step_pct} of the step is known by kernel names only, and nothing tells what the CPU did",
)
CPU_CALLS_MISSING_COST = Template(
    "cpu-calls-missing-cost",
    Severity.CHECK,
    "no kernel has a launch: the GPU's idle time stays as measured, whatever the GPU",
)
RECORDING_MISSING = Template(
    "recording-missing",
    Severity.CHECK,
    "none: a captured program, {measured_pct} of whose kernel time a trace measured",
)
RECORDING_MISSING_COST = Template(
    "recording-missing-cost", Severity.CHECK, "{step_pct} of the step follows from shapes, and the CPU is the usual one"
)
RECORDING_MISSING_FIX = Template("recording-missing-fix", Severity.CHECK, "record it on any GPU")
SHAPES_RECORDED = Template("shapes-recorded", Severity.CHECK, "recorded on {ops_pct} of {ops:count op}")
SHAPES_MISSING = Template("shapes-missing", Severity.CHECK, "not recorded")
SHAPES_MISSING_COST = Template(
    "shapes-missing-cost",
    Severity.CHECK,
    "{step_pct} of the step is scaled by kernel class instead of modelled from its work",
)
WORK_KNOWN = Template("work-known", Severity.CHECK, "{time_pct} of kernel time has known work")
WORK_KNOWN_OUTSIDE_GRAPHS = Template(
    "work-known-outside-graphs",
    Severity.CHECK,
    "{time_pct} of the time of kernels outside of CUDA graphs has known work",
)
WORK_KNOWN_EXCEPT = Template(
    "work-known-except",
    Severity.CHECK,
    "{time_pct} of kernel time has known work; the most without: {largest:list}",
)
WORK_UNKNOWN_COST = Template(
    "work-unknown-cost",
    Severity.CHECK,
    "{step_pct} of the step is scaled by kernel class instead of modelled",
)
GRAPH_KERNELS_CAPTURED = Template(
    "graph-kernels-captured",
    Severity.CHECK,
    "{kernels:count kernel} out of {launches:count graph launch}; the capture tells the ops of {captured}",
)
GRAPH_KERNELS_WITHOUT_OPS = Template(
    "graph-kernels-without-ops",
    Severity.CHECK,
    "{kernels:count kernel} out of {launches:count graph launch}; nothing tells their ops",
)
GRAPHS_RECORDED_WHOLE = Template(
    "graphs-recorded-whole",
    Severity.CHECK,
    "{whole} of {launches:count graph launch} were recorded as a whole: what runs in them isn't known",
)
GRAPH_NODES_FIX = Template("graph-nodes-fix", Severity.CHECK, "nsys profile --cuda-graph-trace=node")
GRAPH_KERNELS_COST = Template(
    "graph-kernels-cost",
    Severity.CHECK,
    "{step_pct} of the step has no shapes of its own: scaled by kernel class",
)
GRAPH_CAPTURE_FIX = Template(
    "graph-capture-fix",
    Severity.CHECK,
    "give the model's config.json too ({--model-config}), or the trace of the capture (vLLM: capture_torch_profiler, "
    "SGLang: --enable-profile-cuda-graph), or record some steps without graphs (enforce_eager, --disable-cuda-graph)",
)
IDLE_TIME_EXPLAINED = Template(
    "idle-time-explained", Severity.CHECK, "the GPU is idle for {idle_pct} of the step, all explained"
)
IDLE_TIME_IN_GRAPHS = Template(
    "idle-time-in-graphs",
    Severity.CHECK,
    "the GPU is idle for {idle_pct} of the step: {graph_pct} within CUDA graphs, the rest explained",
)
IDLE_TIME_UNEXPLAINED = Template(
    "idle-time-unexplained",
    Severity.CHECK,
    "the GPU is idle for {idle_pct} of the step: {open_pct} for no recorded reason, the rest explained",
)
IDLE_TIME_SPLIT = Template(
    "idle-time-split",
    Severity.CHECK,
    "the GPU is idle for {idle_pct} of the step: {graph_pct} within CUDA graphs, {open_pct} for no recorded reason, "
    "the rest explained",
)
IDLE_TIME_COST = Template("idle-time-cost", Severity.CHECK, "{step_pct} of the step likely stays as measured")
IDLE_IN_GRAPH_FIX = Template(
    "idle-in-graph-fix",
    Severity.CHECK,
    "record some steps without CUDA graphs (enforce_eager, --disable-cuda-graph, torch.compile without its mode "
    "reduce-overhead)",
)
IDLE_UNEXPLAINED_FIX = Template(
    "idle-unexplained-fix",
    Severity.CHECK,
    "record several steps after a warm-up; leave out with {--steps} those that have it",
)
UNRECORDED_WORK_WAITED_FOR = Template(
    "unrecorded-work-waited-for",
    Severity.CHECK,
    "{waits:mean wait} of the CPU in a step, {time_us} together, went on after all recorded work of the GPU had ended",
)
UNRECORDED_WORK_COST = Template(
    "unrecorded-work-cost",
    Severity.CHECK,
    "what the GPU ran for {step_pct} of the step isn't in the trace: predictions of it are a guess",
)
UNRECORDED_WORK_FIX = Template(
    "unrecorded-work-fix",
    Severity.CHECK,
    "record fewer steps at once, as full buffers lose kernels, and without CUDA graphs that repeat parts",
)
COLLECTIVES_SIZED = Template("collectives-sized", Severity.CHECK, "{sized} of {collectives} have a message size")
COLLECTIVES_UNSIZED_COST = Template(
    "collectives-unsized-cost",
    Severity.CHECK,
    "{step_pct} of the step is communication of unknown size",
)
COLLECTIVES_UNSIZED_FIX = Template(
    "collectives-unsized-fix",
    Severity.CHECK,
    "record CPU ops with torch 2.2 or later: they note every collective's size",
)
TIMES_IN_ORDER = Template(
    "times-in-order",
    Severity.CHECK,
    "kernels start after their launch, and end in their stream's order",
)
TIMES_CORRECTED = Template("times-corrected", Severity.CHECK, "{faults:sentences}")
TIMES_CORRECTED_COST = Template("times-corrected-cost", Severity.CHECK, "predictions rest on the corrected times")
TIMES_CORRECTED_FIX = Template(
    "times-corrected-fix",
    Severity.CHECK,
    "record the trace again; if it comes back, update PyTorch and the driver",
)
STEPS_MARKED = Template("steps-marked", Severity.CHECK, "{marked} marked, {measured} of them measured")
STEPS_WITHOUT_MARKS = Template(
    "steps-without-marks",
    Severity.CHECK,
    "no marks of steps: the whole trace counts as one step",
)
STEPS_WITHOUT_MARKS_SEVERAL = Template(
    "steps-without-marks-several",
    Severity.CHECK,
    "no marks of steps: the whole trace counts as one step, though the optimizer ran {updates} times",
)
STEPS_WITHOUT_MARKS_COST = Template(
    "steps-without-marks-cost",
    Severity.CHECK,
    "{step_pct} of it lies before or after all GPU work and counts as part of the step",
)
STEPS_MARK_FIX = Template("steps-mark-fix", Severity.CHECK, "{schedule} and profiler.step()")
ONE_STEP_MARKED = Template("one-step-marked", Severity.CHECK, "one step is marked")
ONE_STEP_COST = Template(
    "one-step-cost",
    Severity.CHECK,
    "nothing tells how steps vary, and this one counts from its own mark, not from the end of one before",
)
STEPS_SPREAD = Template(
    "steps-spread",
    Severity.CHECK,
    "{steps:count step} of {min_us} to {max_us}, median {median_us}",
)
STEPS_SPREAD_COST = Template(
    "steps-spread-cost",
    Severity.CHECK,
    "the median step stands for steps that differ by ±{half_width_pct}",
)
STEPS_SPREAD_FIX = Template(
    "steps-spread-fix",
    Severity.CHECK,
    "warm up longer, or choose like steps with {--steps} N:M",
)
WARM_UP_CALLS = Template(
    "warm-up-calls",
    Severity.CHECK,
    "{calls:count call} in the measured steps to allocate memory, load kernels or create streams",
)
WARM_UP_CALLS_FIRST_SLOW = Template(
    "warm-up-calls-first-slow",
    Severity.CHECK,
    "{calls:count call} in the measured steps to allocate memory, load kernels or create streams; the first step took"
    " {slowdown:.1f} times as long and is left out",
)
WARM_UP_CALLS_COST = Template(
    "warm-up-calls-cost",
    Severity.CHECK,
    "{step_pct} of the step is warming up, and counts as every step's",
)
GPU_SPEED = Template(
    "gpu-speed",
    Severity.CHECK,
    "{kernels:count kernel} of known work take {ratio:.1f} times what is usual on this GPU",
)
GPU_SPEED_COST = Template(
    "gpu-speed-cost",
    Severity.CHECK,
    "all families do, from {min_ratio:.1f} ({fastest_family}) to {max_ratio:.1f} times ({slowest_family}): its clock "
    "was low, or others used it; {step_pct} of the step may be due to that, and predictions carry it to other GPUs",
)
GPU_SPEED_FIX = Template(
    "gpu-speed-fix",
    Severity.CHECK,
    "warm up longer, and see what throttles it (nvidia-smi -q -d PERFORMANCE, rocm-smi)",
)
KERNELS_UNLAUNCHED = Template(
    "kernels-unlaunched",
    Severity.CHECK,
    "{unlaunched} of {activities} GPU activities have no launch in the trace",
)
KERNELS_UNLAUNCHED_EARLY = Template(
    "kernels-unlaunched-early",
    Severity.CHECK,
    "{unlaunched} of {activities} GPU activities have no launch in the trace, {early} of them began before the first "
    "call",
)
KERNELS_UNLAUNCHED_COST = Template(
    "kernels-unlaunched-cost",
    Severity.CHECK,
    "{step_pct} of the step belongs to no step and no op, and waits for no CPU",
)
KERNELS_UNLAUNCHED_FIX = Template("kernels-unlaunched-fix", Severity.CHECK, "{schedule}: warm-up steps catch them")
GRAPH_REPLAYS_LACK_NODES = Template(
    "graph-replays-lack-nodes",
    Severity.CHECK,
    "{incomplete} of {replays} replays lack {missing} kernels of their graph",
)
LAUNCHES_UNMATCHED = Template(
    "launches-unmatched",
    Severity.CHECK,
    "{lost} of {launches} launches have no kernel in the trace",
)
LAUNCHES_UNMATCHED_COST = Template(
    "launches-unmatched-cost",
    Severity.CHECK,
    "work of the GPU, up to {step_pct} of the step, is missing and counts as idle time",
)
LAUNCHES_UNMATCHED_FIX = Template(
    "launches-unmatched-fix",
    Severity.CHECK,
    "record fewer steps at once: full buffers lose kernels",
)
RECORDING_OPTIONS_OFF = Template("recording-options-off", Severity.CHECK, "no stacks, no modules, no memory")
RECORDING_OPTIONS_OFF_TIMED = Template(
    "recording-options-off-timed",
    Severity.CHECK,
    "no stacks, no modules, no memory; a step takes {unprofiled_pct} of its time without the profiler",
)
RECORDING_OPTIONS_ON = Template(
    "recording-options-on",
    Severity.CHECK,
    "{options:list} on; the GPU is idle for {idle_pct} of the step",
)
RECORDING_OPTIONS_ON_TIMED = Template(
    "recording-options-on-timed",
    Severity.CHECK,
    "{options:list} on; a step takes {unprofiled_pct} of its time without the profiler; the GPU is idle for "
    "{idle_pct} of the step",
)
RECORDING_OPTIONS_COST = Template(
    "recording-options-cost",
    Severity.CHECK,
    "recording this lengthens the CPU's time, up to {step_pct} of the step",
)
SYNCS_RECORDED = Template("syncs-recorded", Severity.CHECK, "{streams:count stream}, {syncs:count sync event}")
SYNCS_UNRESOLVED = Template(
    "syncs-unresolved",
    Severity.CHECK,
    "{streams:count stream}, {syncs:count sync event}, but none of {waits:count wait} names its stream",
)
SYNCS_UNRESOLVED_COST = Template(
    "syncs-unresolved-cost",
    Severity.CHECK,
    "waits between streams are inferred from times",
)
SYNCS_UNRESOLVED_FIX = Template(
    "syncs-unresolved-fix",
    Severity.CHECK,
    "record with torch built for CUDA 12.8 or earlier: later ones lose the stream that is waited for",
)
SYNCS_UNNEEDED = Template("syncs-unneeded", Severity.CHECK, "{streams:count stream}: no sync events needed")
SYNCS_UNSUPPORTED = Template(
    "syncs-unsupported",
    Severity.CHECK,
    "{streams:count stream}; AMD's profiler records no sync events: waits are inferred from times",
)
SYNCS_MISSING = Template("syncs-missing", Severity.CHECK, "{streams:count stream}, no sync events")
SYNCS_MISSING_COST = Template(
    "syncs-missing-cost",
    Severity.CHECK,
    "waits of {step_pct} of the step, on other streams, are inferred from times",
)
SYNCS_MISSING_FIX = Template("syncs-missing-fix", Severity.CHECK, "{option} (in experimental_config)")
REPLAY_ERROR = Template("replay-error", Severity.CHECK, "misses the measured step by {error_pct:+.1f} %")
REPLAY_ERROR_COST = Template(
    "replay-error-cost",
    Severity.CHECK,
    "the trace holds waits that no recorded or inferred dependency explains",
)
RANKS_ALL_READ = Template("ranks-all-read", Severity.CHECK, "all {ranks} ranks")
RANKS_READ = Template("ranks-read", Severity.CHECK, "{ranks_read} of {ranks} ranks")
RANKS_MISSING_COST = Template(
    "ranks-missing-cost",
    Severity.CHECK,
    "the others are assumed to arrive when a like rank does",
)
RANKS_ALONE_COST = Template(
    "ranks-alone-cost",
    Severity.CHECK,
    "{step_pct} of the step runs only collectives; how much of it is waiting for other ranks can't be told",
)
RANKS_MISSING_FIX = Template(
    "ranks-missing-fix",
    Severity.CHECK,
    "record every rank, and name the folder with all their traces",
)
RANKS_LACKING_FIX = Template(
    "ranks-lacking-fix", Severity.CHECK, "record these ranks again, fewer steps at once: full buffers lose kernels"
)
RANK_CHECKED = Template("rank-checked", Severity.CHECK, "rank {rank}: {evidence}")
RANKS_CHECKED = Template("ranks-checked", Severity.CHECK, "rank {rank} and {more} more: {evidence}")
RANK_UNMEASURED = Template("rank-unmeasured", Severity.CHECK, "{reason}")
RANK_UNMEASURED_COST = Template("rank-unmeasured-cost", Severity.CHECK, "the job's step can't be measured with it")

EVENTS_MISSING = Template("events-missing", Severity.CHECK, "{losses:sentences}")
EVENTS_MISSING_COST = Template(
    "events-missing-cost",
    Severity.CHECK,
    "about {lost_pct:.2g} % of what happened is missing",
)
EVENTS_UNCOUNTED_COST = Template("events-uncounted-cost", Severity.CHECK, "what is missing counts as idle time")
EVENTS_MISSING_FIX = Template("events-missing-fix", Severity.CHECK, "copy or record the file again")
RECORD_BATCHES = Template("record-batches", Severity.CHECK, "record a dozen batches or more, under load")
RECORD_WITH = Template("record-with", Severity.CHECK, "{options:list}")

FORMAT_OF_TOOL = Template("format-of-tool", Severity.CHECK, "a trace of {tool}, which has no: {lacks:list}")
FORMAT_FIX = Template("format-fix", Severity.CHECK, "record with torch.profiler")
