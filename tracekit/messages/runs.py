"""Measured runs: their steps, GPU, ranks and what was assumed of them."""

from tracekit.messages.model import error, name_templates, note, warning

NOT_LOADED = error("{given} is no trace.", "Load it: tk.load(path).")
TIMES_OVERFLOW = error("The {subject} would take more than 30 years.", "Change them less.")

UNPROFILED_STEP_TOO_LONG = error(
    "A step of {step_time_us} without the profiler is longer than the recorded one, {recorded_us}.",
    "Give the time of the same step.",
)
UNPROFILED_STEP_TOO_SHORT = error(
    "A step of {step_time_us} without the profiler is shorter than what the recorded step takes with no work of the "
    "CPU at all, {least_us}.",
    "Give the time of the same step.",
)
PROFILER_OVERHEAD_REMOVED = note(
    "A step of {step_time_us} without the profiler, instead of {recorded_us} as recorded, leaves {host_pct} of the "
    "CPU's own work; the rest is taken for the profiler's."
)
RULES_OFF = note("Replayed without the inference rules {rules:list}.")

SOURCE_GPU_RENAMED = warning("The trace describes its GPU as {described}: its times count as {named}'s, as requested.")
SOURCE_GPU_UNRESOLVED = warning("{reason}", "Name the GPU with {--source-gpu}, or describe it in a .toml file.")

COLLECTIVES_UNLIKE = warning("{collectives:count collective} with another kind or size on another rank")
COLLECTIVES_UNEVEN = warning("{collectives:count collective} that not every rank has as often")
COLLECTIVES_AMBIGUOUS = warning(
    "{collectives:count collective} that can't be told apart, as the process groups aren't recorded"
)
MESSAGES_UNPAIRED = warning("{collectives:count message} of which the other rank isn't recorded")
COLLECTIVES_APART = warning("{collectives:count collective} that don't coincide in time")

name_templates(globals())
