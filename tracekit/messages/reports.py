"""Reports: their warnings, and comparisons."""

from tracekit.messages.model import error, name_templates, note, warning

TARGET_NOT_PREDICTED = warning("Not predicted on {target}: {reason}")
PRICE_UNUSED = warning("The price of {gpus:list} isn't used: neither the trace's GPU nor a target is meant.")
PRICES_OLD = warning("The file of prices is {days} days old, of {date}.")
RANK_WARNED = warning("rank {rank}: {warning}")
RANKS_WARNED = warning("rank {rank} and {more} more: {warning}")
WARNING_REPEATED = warning("{warning} (and {more} more like it)")

TIMES_SYNTHETIC = warning(
    "The trace is synthetic: a program made up its times, and no GPU ran it. It shows what a report looks like, not "
    "how fast anything is."
)
NOTHING_MEASURED = warning(
    "Nothing was measured: the program was captured without a GPU. What is called captured are times predicted "
    "for {gpu} with its usual CPU.",
    "A trace of it on any GPU makes this surer.",
)
CAPTURE_SHARPENED = warning(
    "The program was captured without a GPU. {trace} corrected its times: it ran {seen_pct} of kernel time with the "
    "same inputs; the others take its ratio of measured to predicted time. The CPU is the usual one beside a "
    "{gpu}."
)
CPU_OPS_SCALED = warning(
    "{trace} ran {seen_pct} of the time on {gpu} with the same inputs; the others take its ratio of measured to "
    "predicted time."
)
CAPTURED_COLLECTIVES_MISSING = warning(
    "Its {collectives:count collective} are left out: the step is that of one rank without its job.",
    "{--dp} and the other layouts add those of a job.",
)
CAPTURED_WORK_UNKNOWN = warning(
    "{kernels:count kernel} ({kernels_pct} of all) are of unknown work and count as {each_us} each."
)
INDICES_ASSUMED = warning(
    "{time_pct} of kernel time depends on how often each row of a table is looked up, which nothing tells: Zipf's "
    "law with an exponent of {alpha} is assumed. The intervals reach from even indices to an exponent of {skewed}.",
    "{--zipf} tells the exponent, {--indices} a file of look-ups.",
)

STEPS_UNMARKED = warning(
    "No steps are marked, so the whole trace counts as one, though the optimizer ran {updates} times: all times are "
    "of them together.",
    "Mark steps with profiler.step().",
)
OTHER_BATCHES = warning(
    "The engine also ran {batches:list}: the step isn't theirs. Their times stand under serving.",
    "Measure the first with {--steps} {step}.",
)
BATCHES_OF_A_KIND = warning("{count} {kind} batches")
BATCH_OF_A_KIND = warning("{count} {kind} batch")
SEVERAL_GPUS_IN_PROCESS = warning(
    "A process drove {gpus} GPUs: busy means that any of them was, kernel times are of all, energy is of the mean one, "
    "and dollars are for as many."
)
LAUNCHES_MISSING = warning(
    "{time_pct} of kernel time is of kernels whose launch wasn't recorded: what they wait for stays as measured.",
    "Record the CPU's calls, and warm-up steps.",
)
LAUNCHES_MISSING_IN_STEPS = warning(
    "{time_pct} of kernel time is of kernels whose launch wasn't recorded: what they wait for stays as measured, "
    "and they count to no step.",
    "Record the CPU's calls, and warm-up steps.",
)
KERNELS_LOST = warning(
    "{lost} of {launches:count launch} have no kernel in the trace: what they ran counts as idle time on every GPU.",
    "Record fewer steps at once: full buffers lose kernels.",
)
GRAPHS_NOT_TRACED = warning(
    "{lost} of {launches:count launch} have no kernel in the trace, all of CUDA graphs: what they ran counts as idle "
    "time on every GPU.",
    "Record with `nsys profile --cuda-graph-trace=node`.",
)
GRAPHS_WHOLE = warning(
    "{launches:count launch} of CUDA graphs, {time_pct} of kernel time, were recorded as a whole: what runs in them "
    "isn't known, so their times on other GPUs are little more than a guess.",
    "Record with `nsys profile --cuda-graph-trace=node`.",
)
GRAPH_REPLAYS_INCOMPLETE = warning(
    "{incomplete} of {replays:count replay} of CUDA graphs lack {missing:count kernel} that other replays of the same "
    "graph have: what they ran counts as idle time on every GPU.",
    "Record fewer steps at once: full buffers lose kernels.",
)
UNRECORDED_WORK = warning(
    "{waits:mean wait} of the CPU in a step went on for {time_us} after all recorded work of the GPU had ended: it ran "
    "something that isn't in the trace. Predictions scale it like the recorded kernels, from none of it to all of it.",
    "Record fewer steps at once, so that no kernels are lost, and without CUDA graphs that repeat parts.",
)
ATTENTION_MASK_UNKNOWN = warning(
    "{time_pct} of kernel time is of attention whose mask isn't in the trace: it counts as unmasked. If it is "
    "causal, it does half the work.",
    "Record with a newer PyTorch, which writes the values of ops' inputs.",
)
CLOCK_LOW = warning(
    "Kernels of all families took longer than they usually do on this GPU, from {min_ratio:.1f} ({fastest_family}) to"
    " {max_ratio:.1f} times ({slowest_family}): its clock was low, or others used it. Predictions carry that to other"
    " GPUs."
)
REPLAY_INEXACT = warning(
    "The replay misses the measured step by {error_pct:+.1f} %: the trace holds waits that no recorded or inferred "
    "dependency explains. Its predictions are less sure than their intervals say."
)
GRAPH_GAPS_KEPT = warning(
    "For {step_pct} of the step ({idle_us}) the GPU was idle within CUDA graphs: what ran or waited there isn't "
    "recorded, and this time is kept as measured. On a faster GPU the step may be shorter than predicted."
)
GPU_STALLED = warning(
    "For {step_pct} of the step the GPU stood still with work launched and nothing recorded to wait for (a kernel's "
    "first launch does that): this time is kept as measured."
)
DEPENDENCIES_DROPPED = warning("{dependencies} inferred dependencies contradict others and were left out.")
IDLE_UNEXPLAINED = warning(
    "For {step_pct} of the step ({idle_us}) the GPU was idle, mostly before {kernel}, and nothing in the trace says "
    "why: this time is kept as measured on every GPU, so a speedup is smaller than that of the work.",
    "Record several steps after a warm-up, or leave out those that have it with {--steps}.",
)
IDLE_UNEXPLAINED_AT_END = warning(
    "For {step_pct} of the step ({idle_us}) the GPU was idle at the end of the step, and nothing in the trace says "
    "why: this time is kept as measured on every GPU, so a speedup is smaller than that of the work.",
    "Record several steps after a warm-up, or leave out those that have it with {--steps}.",
)
PROFILER_SLOWS_STEP = warning(
    "A step took {without_us} without the profiler and {with_us} with it.",
    "Take that out with {--unprofiled-step} {without_us:milliseconds}.",
)
PROFILER_HOLDS_CPU = warning(
    "The profiler itself held up the CPU for {held_us} of the measured steps ({kinds:list}).",
    "Take that out with {--what-if} 'no-profiler()'.",
)
ONE_RANK_READ = warning(
    "One of {ranks} ranks was read: what collectives take beyond the shortest of their kind is kept as waiting for "
    "other ranks, {kept_us} a step, that while other kernels ran included.",
    "Give all ranks' traces to derive it.",
)
SOME_RANKS_READ = warning(
    "{ranks_read} of {ranks} ranks were read: the others are assumed to arrive when a like rank does, and what "
    "collectives take beyond the shortest of their kind is kept as waiting for other ranks, {kept_us} a step, that "
    "while other kernels ran included.",
    "Give all ranks' traces to derive it.",
)
RANKS_DISAGREE = warning("{mismatch}: they are not joined, and their waiting is kept as measured.")
RANKS_NOT_JOINED = warning(
    "No collective joins the ranks: they are replayed side by side, on their clocks as recorded."
)
CLOCKS_UNALIGNED = warning(
    "No collective in which all wait for all aligns the clocks of these ranks: {ranks}. They are taken as recorded."
)

STEPS_DIFFER = warning(
    "{differing} of {measured:count step} differ from the median one, {median_us}, by more than a factor of "
    "{min_ratio:g}: {largest:list}. The step shown is the median one; throughput and what a run takes and costs are of "
    "the mean one, {mean_us}.",
    "Choose others with {--steps}.",
)
STEPS_DIFFER_FROM_MEAN = warning(
    "{differing} of {measured:count step} differ from the mean of the two middle ones, {median_us}, by more than a "
    "factor of {min_ratio:g}: {largest:list}. The step shown is that mean, and none of them; throughput and what a run "
    "takes and costs are of the mean of all, {mean_us}.",
    "Choose one with {--steps}.",
)
KERNEL_NAMES_CONTRADICTED = warning(
    "{kernels:count kernel} have a name that can't be right for their op, such as {op:.60}, and that other kinds of "
    "ops have too: the ops and their shapes count instead.",
    "Record with another version of the profiler.",
)
STEP_TOOK = warning("step {step} took {time_us}")
STEP_GPU_WORKED_MORE = warning("step {step} took {time_us} (the GPU worked {gpu_us} more)")
STEP_GPU_WORKED_LESS = warning("step {step} took {time_us} (the GPU worked {gpu_us} less)")
STEP_GPU_IDLE_LESS = warning("step {step} took {time_us} (the GPU was idle for {idle_us} less)")
STEP_GPU_IDLE_MORE = warning("step {step} took {time_us} (the GPU was idle for {idle_us} more: {cause})")
STEP_HELD_BY_HOST_WORK = warning(
    "step {step} took {time_us} (the GPU was idle for {idle_us} more: {cause}, in {host_work})"
)
STEP_HELD_BY_UNKNOWN_HOST_WORK = warning(
    "step {step} took {time_us} (the GPU was idle for {idle_us} more: {cause}, and no op was recorded)"
)

TIMELINE_LEFT_OUT = warning(
    "There is no timeline: all would be {kernels:count kernel}, more than the {max_kernels} that are drawn.",
    "Choose fewer steps or targets, or use `tracekit export`.",
)
TIMELINE_CUT = warning(
    "The timeline shows the steps {first} to {last} only: all would be {kernels:count kernel}, more than the "
    "{max_kernels} that are drawn.",
    "Choose the steps to see others.",
)


NOT_A_REPORT = error("This is not a report that version {version} of tracekit wrote.", "Build the report again.")


STEPS_OF_OTHER_BATCHES = warning(
    "a step of A works through {batch_a}, one of B through {batch_b}: in the same time B gets {done} done"
)
DONE_MORE = note("{more_pct:number} % more")
DONE_LESS = note("{less_pct:number} % less")
DONE_AS_MUCH = note("as much")
PROGRAMS_DIFFER = warning(
    "kernels that both have make up {shared_pct} of the kernels' time, and most GEMMs, convolutions or ops are others: "
    "neither step tells anything about the other"
)
FEW_KERNELS_SHARED = warning(
    "kernels that both have make up {shared_pct} of the kernels' time: are these the same program, batch and shapes?"
)
FEW_PREDICTED_KERNELS_SHARED = warning(
    "kernels that both have make up {shared_pct} of the kernels' time: are these the same program, batch and shapes? "
    "A prediction's kernels have the shapes of the trace, also for another batch or layout"
)
PREDICTION_NOT_OF_MEASUREMENT = warning(
    "the prediction is for {predicted}, the measurement of {measured}: how far the prediction is off isn't told by it"
)
MEASURED_GPU_UNKNOWN = warning(
    "the GPU of the measurement isn't known: the prediction is off by this if it was the predicted one"
)
RANK_WITHOUT_OTHERS = warning(
    "{side} is one rank of several without the others: its waiting for them can't be told from communication"
)
KERNELS_UNLISTED = warning(
    "{side}'s file leaves out the kernels with least time, {kernels:,} of them: "
    "whether {other} has them can't be told.",
    "Predict anew to have them compared.",
)


name_templates(globals())
