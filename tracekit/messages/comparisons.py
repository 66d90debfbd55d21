"""Doubts about a comparison of two runs, A and B."""

from tracekit.messages.model import Severity, Template

STEPS_OF_OTHER_BATCHES = Template(
    "steps-of-other-batches",
    Severity.WARNING,
    "a step of A works through {batch_a}, one of B through {batch_b}: in the same time B gets {done} done",
)
DONE_MORE = Template("done-more", Severity.NOTE, "{more_pct:number} % more")
DONE_LESS = Template("done-less", Severity.NOTE, "{less_pct:number} % less")
DONE_AS_MUCH = Template("done-as-much", Severity.NOTE, "as much")
PROGRAMS_DIFFER = Template(
    "programs-differ",
    Severity.WARNING,
    "kernels that both have make up {shared_pct} of the kernels' time, and most GEMMs, convolutions or ops are others: "
    "neither step tells anything about the other",
)
FEW_KERNELS_SHARED = Template(
    "few-kernels-shared",
    Severity.WARNING,
    "kernels that both have make up {shared_pct} of the kernels' time: are these the same program, batch and shapes?",
)
FEW_PREDICTED_KERNELS_SHARED = Template(
    "few-predicted-kernels-shared",
    Severity.WARNING,
    "kernels that both have make up {shared_pct} of the kernels' time: are these the same program, batch and shapes? "
    "A prediction's kernels have the shapes of the trace, also for another batch or layout",
)
PREDICTION_NOT_OF_MEASUREMENT = Template(
    "prediction-not-of-measurement",
    Severity.WARNING,
    "the prediction is for {predicted}, the measurement of {measured}: how far the prediction is off isn't told by it",
)
MEASURED_GPU_UNKNOWN = Template(
    "measured-gpu-unknown",
    Severity.WARNING,
    "the GPU of the measurement isn't known: the prediction is off by this if it was the predicted one",
)
RANK_WITHOUT_OTHERS = Template(
    "rank-without-others",
    Severity.WARNING,
    "{side} is one rank of several without the others: its waiting for them can't be told from communication",
)
KERNELS_UNLISTED = Template(
    "kernels-unlisted",
    Severity.WARNING,
    "{side}'s file leaves out the kernels with least time, {kernels:,} of them: "
    "whether {other} has them can't be told.",
    "Predict anew to have them compared.",
)
