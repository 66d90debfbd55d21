"""Measured runs: their steps, GPU, ranks and what was assumed of them."""

from tracekit.messages.model import Severity, Template

NOT_LOADED = Template("not-loaded", Severity.ERROR, "{given} is no trace.", "Load it: tk.load(path).")
TIMES_OVERFLOW = Template(
    "times-overflow", Severity.ERROR, "The {subject} would take more than 30 years.", "Change them less."
)

UNPROFILED_STEP_TOO_LONG = Template(
    "unprofiled-step-too-long",
    Severity.ERROR,
    "A step of {step_time_us} without the profiler is longer than the recorded one, {recorded_us}.",
    "Give the time of the same step.",
)
UNPROFILED_STEP_TOO_SHORT = Template(
    "unprofiled-step-too-short",
    Severity.ERROR,
    "A step of {step_time_us} without the profiler is shorter than what the recorded step takes with no work of the "
    "CPU at all, {least_us}.",
    "Give the time of the same step.",
)
PROFILER_OVERHEAD_REMOVED = Template(
    "profiler-overhead-removed",
    Severity.NOTE,
    "A step of {step_time_us} without the profiler, instead of {recorded_us} as recorded, leaves {host_pct} of the "
    "CPU's own work; the rest is taken for the profiler's.",
)
RULES_OFF = Template("rules-off", Severity.NOTE, "Replayed without the inference rules {rules:list}.")

SOURCE_GPU_RENAMED = Template(
    "source-gpu-renamed",
    Severity.WARNING,
    "The trace describes its GPU as {described}: its times count as {named}'s, as requested.",
)
SOURCE_GPU_UNRESOLVED = Template(
    "source-gpu-unresolved",
    Severity.WARNING,
    "{reason}",
    "Name the GPU with {--source-gpu}, or describe it in a .toml file.",
)

COLLECTIVES_UNLIKE = Template(
    "collectives-unlike",
    Severity.WARNING,
    "{collectives:count collective} with another kind or size on another rank",
)
COLLECTIVES_UNEVEN = Template(
    "collectives-uneven", Severity.WARNING, "{collectives:count collective} that not every rank has as often"
)
COLLECTIVES_AMBIGUOUS = Template(
    "collectives-ambiguous",
    Severity.WARNING,
    "{collectives:count collective} that can't be told apart, as the process groups aren't recorded",
)
MESSAGES_UNPAIRED = Template(
    "messages-unpaired",
    Severity.WARNING,
    "{collectives:count message} of which the other rank isn't recorded",
)
COLLECTIVES_APART = Template(
    "collectives-apart", Severity.WARNING, "{collectives:count collective} that don't coincide in time"
)
