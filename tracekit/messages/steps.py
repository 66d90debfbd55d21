"""Steps of a trace."""

from tracekit.messages.model import error, name_templates, note, warning

STEP_BEGINS_LATE = warning(
    "The first kernel started {waited_us} after its launch, as the GPU was busy with work from before the recording: "
    "the step begins at that kernel.",
    "Record several steps, after a warm-up.",
)
STEPS_MARKED_IN_PART = warning(
    "Ranks {ranks:list} mark no steps as the others do, so that each rank's whole trace counts as one.",
    "Mark steps with profiler.step() on every rank.",
)
STEPS_OVERLAP = warning(
    "The GPUs are busy for {kernel_us} in a step of {step_us}: the ranks' steps overlap, so that a rank's work for one "
    "step falls into the time of another.",
    "Choose others with {--steps}, or measure one rank with {--ranks}.",
)
STEP_NUMBERS_REPEATED = warning(
    "The marks of steps repeat their numbers ({labels}): the steps are numbered {numbers} in order of time.",
    "{--steps} chooses by these.",
)
STEPS_OF_OTHER_WORK = warning(
    "Steps {others} do other work than steps {usual}, as those of validation and of training do: they aren't measured.",
    "Measure some with {--steps} {steps}.",
)
STEPS_RENUMBERED = note(
    "Ranks {ranks:list} number their steps differently: their collectives join their steps to the first rank's."
)
STEPS_JOINED_BY_TIME = note(
    "Ranks {ranks:list} number their steps differently: their steps are joined to the first rank's by time, as the "
    "collectives of several steps are alike."
)
STEPS_JOINED_BY_NUMBER = warning(
    "The steps of ranks {ranks:list} are joined to the first rank's by number or order: the clocks are more than half "
    "a step apart, and the collectives of several steps are alike, or none is of both ranks.",
    "Record with PyTorch 2.4 or newer, which numbers collectives.",
)
STEP_NOT_FOUND = error("The trace has no step {steps}.", "It has {known}.")
STEPS_WITHOUT_GPU_WORK = error("Nothing ran on the GPU in the steps to measure.", "Choose others with {--steps}.")
STEP_TIME_ZERO = error(
    "{path} has no step that takes any time.", "Its events' times are all the same: record the trace again."
)
STEPS_FROM_UPDATES = note("No ProfilerStep is marked: a step runs from one update of the optimizer to the next.")
STEPS_FROM_WORKER = note(
    "No step is marked: each call of {name:.80} in Python is one.",
    "If that is wrong, switch the rule off: {--without-rules} worker-call-steps.",
)
STEPS_FROM_RANGES = note(
    "No ProfilerStep is marked: each range {name!r:.80} is a step, as they repeat with about the same GPU work.",
    "If that is wrong, switch the rule off: {--without-rules} repeated-range-steps.",
)
STEPS_FROM_GRAPHS = note(
    "No step is marked: each round of {name} graph launches is one, as they repeat in this order.",
    "If that is wrong, switch the rule off: {--without-rules} graph-launch-steps.",
)
STEP_FROM_RANGE = note(
    "No step is marked: the range {name!r:.80} is the step, and ranges before it that prepare the run are left out.",
    "If that is wrong, switch the rule off: {--without-rules} setup-ranges.",
)
STEP_WITHOUT_SETUP = note(
    "No step is marked: all but what prepares the run counts as one. Left out, with what lies before: {name:.200}.",
    "If that is wrong, switch the rule off: {--without-rules} setup-ranges.",
)
name_templates(globals())

SOURCES = {
    template.code: template
    for template in (
        *(STEPS_FROM_UPDATES, STEPS_FROM_WORKER, STEPS_FROM_RANGES, STEPS_FROM_GRAPHS),
        *(STEP_FROM_RANGE, STEP_WITHOUT_SETUP),
    )
}
"""Messages that say by what steps were found, by code."""
