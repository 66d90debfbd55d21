"""Serving a language model: the load, the cache's memory, the engine's steps."""

from tracekit.messages.model import error, name_templates, note, warning

LENGTHS_UNREADABLE = error("{path} can't be read: {reason}.", "Give a CSV with the columns input and output.")
LENGTHS_MALFORMED = error(
    "{path} has no lengths of requests.",
    "Give a CSV with the columns input and output, in whole tokens from 1, and maybe arrival, in seconds, rising.",
)
SERVING_LOAD_TWICE = error("Both a concurrency and a rate are given.", "Give {--concurrency} or {--rate}.")
SERVING_LENGTHS_TWICE = error(
    "Lengths are given twice.",
    "Give {--lengths}, or {--input-tokens} and {--output-tokens} for requests of one length.",
)
SERVING_EXPERTS = error("{path} describes no experts that {--ep} could share.")
SERVING_EXPERT_RANKS = error(
    "Of an engine, {expert_ranks:count rank} can't share the experts where {ranks} share each layer.",
    "Take {--ep} as large as {--tp}, or a multiple: then each {--tp} ranks have requests of their own.",
)
SERVING_BACKEND = error("{given!r} exchanges no tokens of experts.", "Known are {known:list}.")
SERVING_BACKEND_ALONE = error(
    "{backend} exchanges tokens between ranks with requests of their own, and all have the same ones here.",
    "Give {--ep} larger than {--tp}.",
)
SERVING_TRACE_OF_STAGE = error(
    "A trace of one stage doesn't calibrate an engine of several.", "Leave out the trace, or {--pp}."
)
SERVING_STAGES = error("{stages:count stage} can't share {layers:count layer}.", "Give a smaller {--pp}.")
SERVING_DRAFT = error(
    "{accepted} accepted tokens a step need more than {drafted:count draft token}.",
    "Give {--draft-tokens}, and {--accepted-tokens} of 1 to one more.",
)
SERVING_APART_AT_ONCE = error(
    "Engines that prefill and decode apart are asked for requests at once.", "Give {--rate} instead of {--concurrency}."
)
SERVING_PRECISION = error("{given!r} is no {what} of a served model.", "Known are {known:list}.")
SERVING_PERCENTILE = error("{given} is no percentile of the answer.", "Give one of {known:list}.")
SERVING_CLUSTER_SMALL = error(
    "{cluster} has {gpus:count GPU}, and {--tp} with {--ep} needs {ranks}.", "Give a larger cluster."
)
SERVING_DISAGGREGATED = error(
    "{given!r} is no split of replicas.", "Give replicas that prefill and replicas that decode, such as 2:6."
)
SERVING_DOES_NOT_FIT = error(
    "{gpu}: weights of {weight_bytes} a GPU leave {left_bytes} for the cache, and a request of {tokens} tokens needs "
    "{needed_bytes}.",
    "Would fit: {remedies:list}.",
)
SERVING_LEFT_OUT = warning(
    "The model or a request doesn't fit on {gpus:list}, left out here.",
    "Asked alone, one of them tells what would fit.",
)
SERVING_FITS_TP = note("{--tp} {tp}")
SERVING_FITS_EP = note("{--ep} {ep}")
SERVING_FITS_PRECISION = note("{--precision} {precision}")
SERVING_FITS_CACHE = note("{--cache-type} {cache}")
SERVING_FITS_TOKENS = note("requests of at most {tokens:,} tokens")
SERVING_FITS_NOTHING = note("weights of fewer bits, or another GPU")
SERVING_PREEMPTED = note(
    "{gpu}: the cache is full, and sequences lost their pages {preemptions:count time}: they were computed again."
)
SERVING_OVERLOADED = note(
    "{gpu}: {rate:number} requests a second come, and {served:number} are served: the queue grows, and so do times to "
    "the first token the longer the load lasts."
)
SERVING_PACE = note(
    "{gpu}: a step that decodes {sequences:count sequence} takes the GPU {gpu_us} ({gpu_ends_us:interval}) and the "
    "engine's CPU beside it {host_us} ({host_ends_us:interval}): {pace}."
)
SERVING_DRAFT_COST = note(
    "A draft token is assumed to cost what one of the model's {layers} layers does, and each step to give "
    "{--accepted-tokens} tokens."
)
SERVING_SETTINGS = note(
    "{gpu}: steps of at most {tokens:,} new tokens and {sequences:,} sequences, and {share_pct} of the memory, as "
    "{framework} does by default or as you said: {--max-batched-tokens}, {--max-sequences}, {--memory-share}."
)
SERVING_WAVES = note(
    "Requests of one length that start together end together, so their prompts come in waves, as in benchmarks of "
    "fixed lengths. With {--spread} 0.2 they differ, and times to the first token are shorter."
)
SERVING_WAVES_OPEN = note(
    "Requests of one length that end together are followed by prompts that wait for each other, the more of them the "
    "longer client and API server take: the interval of TTFT holds none to three times what they likely do. With "
    "{--spread} 0.2 lengths differ, and times to the first token are shorter."
)
SERVING_TARGET = note("Serving on {gpu}")

SERVING_TRACE_WITHOUT_STEPS = error(
    "The trace has no steps that a serving engine marked as prefill or decode.",
    "Record the engine itself: it marks them (vLLM: execute_..., SGLang: step[...]).",
)
SERVING_TRACE_WITHOUT_GPU = error(
    "The trace doesn't say which GPU it was recorded on, so its steps can't be compared with those predicted.",
    "Name it with {--source-gpu}.",
)
SERVING_TRACES_OF_SEVERAL = error("The traces are of {gpus:list}.", "Give those of one engine on one GPU.")
SERVING_CALIBRATED = note(
    "Steps are as the traces on {gpu} have them: the GPU's work takes {factors:list} of what is predicted, and "
    "{gap_us} pass between two steps."
)
SERVING_CALIBRATED_PACE = note(
    "Steps are as the traces on {gpu} have them: the GPU's work takes {factors:list} of what is predicted, and the "
    "engine's CPU {host_us} for a step, which set the pace."
)
SERVING_CONTEXT_ASSUMED = note(
    "The engine doesn't mark what its cache held: {context:,.0f} tokens of each sequence are assumed, as this load has."
)
SERVING_FACTOR = note("{percent:.0f} % ({kind})")

name_templates(globals())
