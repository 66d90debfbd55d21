"""Doubts about a comparison of two runs, A and B."""

from tracekit.messages.model import name_templates, note, warning

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
