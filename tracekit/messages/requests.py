"""Requests that are refused before a trace is read."""

from tracekit.messages.model import error, name_templates

OPTION_VALUE = error("{option} can't be {given}.", "Give {expected}.")
NO_TARGET = error("No target is named.", "Say where to: {--gpu} h100-sxm, {--cluster} 4x8xh100-sxm@ndr400, or both.")
STEPS_NOT_A_RANGE = error("{--steps}: {steps!r} is no step.", "Give a number or a range, such as 7:9.")
PRICE_NOT_A_PAIR = error("{--price}: {price!r} is no price.", "Write it as h100-sxm=2.49.")
PRICE_NOT_DOLLARS = error("An hour of {gpu} can't cost {given} dollars.", "Give a number, 0 or more.")
PRICES_DIFFER = error("{gpu} has two prices, {first:g} and {second:g} dollars.", "Give it one.")
PRICE_WITHOUT_NAME = error(
    "{--price}: {price:g} dollars could be the price of {targets:list}.", "Say whose it is: h100-sxm=2.49."
)
PRICE_FILE_INVALID = error(
    "{--prices} {path}: {reason}.",
    'Write date = 2026-11-01, then [dollars_an_hour] and lines such as h100-sxm = 2.49 or "A100 SXM 80GB" = 1.29.',
)
RANK_BY_UNKNOWN = error("{--rank-by}: targets aren't ranked by {given!r}.", "Give {known:list}.")
RANK_BY_WITHOUT_PRICE = error(
    "{--rank-by} {ranked_by}: no target has a price.", "Give some with {--price} or {--prices}."
)
RUN_LENGTH_MALFORMED = error(
    "{option} {given!r} is no amount of work.", "Give a number above 0, such as 50000, 300k, 2B or 1e9."
)
RUN_LENGTH_GIVEN_TWICE = error(
    "{--steps-to-run}, {--tokens-to-run} and {--samples-to-run} each say how long the job runs.", "Give one of them."
)
RUN_UNIT_UNKNOWN = error(
    "The trace doesn't tell how many {unit} a step has.",
    "Give steps with {--steps-to-run}, or a rank's samples in a step with {--samples}.",
)
RUN_UNIT_DIFFERS = error(
    "A step of this trace is counted in {counted}, not in {unit}.", "Give the work in {counted} or steps."
)
PREDICTIONS_WITH_OPTIONS = error(
    "Predictions are reported as they were made; options don't apply.", "Give the options to the prediction."
)
TOKENS_NOT_SPECULATED = error(
    "No decode batch of the trace has more tokens than sequences, so that none are speculated.",
    "Leave out {--accepted-tokens}.",
)
ACCEPTED_TOKENS_TOO_MANY = error(
    "{--accepted-tokens} {accepted:number}: a decode batch verifies {verified:number} tokens for a sequence.",
    "Give from 1 to as many.",
)
FRAMEWORK_UNKNOWN = error(
    "{--framework} {framework!r} is no serving engine.",
    "Give vllm, sglang or trtllm, with its version if you know it: vllm==0.19.0.",
)
BATCH_FACTOR_MALFORMED = error(
    "{batch!r} is no batch.", "Give a multiple of the trace's, from {least} to {most}, or max."
)
HOST_MALFORMED = error(
    "{--host} {host!r} is no host.",
    "Give same, typical, a name that `tracekit hosts` lists, or the speed that `tracekit info` prints of a trace of "
    "that machine: {least:g} to {most:g}.",
)
HOST_BENCH_NEEDS_TORCH = error("PyTorch isn't installed here.", "Run {--host} where the job's PyTorch is.")
POWER_CAP_MALFORMED = error("{--power-cap} {power!r} is no power.", "Give watts for one GPU, such as 500W.")
POWER_CAP_TOO_LOW = error(
    "{--power-cap} {power:g} W is lower than a {gpu} can be limited to.", "Give {least:.0f} to {most:.0f} W."
)
CLOCK_MALFORMED = error("{option} {clock!r} is no clock.", "Give megahertz, such as 1200MHz.")
CLOCK_TOO_LOW = error("{option} {clock:g} MHz is lower than a {gpu} runs.", "Give {least:.0f} to {most:.0f} MHz.")
HOST_UNKNOWN = error(
    "{--host} {host} can't be related to the trace's host, whose speed isn't known: it holds too few of PyTorch's ops.",
    "{--host-speed} scales it by a factor.",
)
HOST_GIVEN_TWICE = error("{--host} and {--host-from} each name the target's CPU.", "Give one of them.")
HOST_FROM_UNKNOWN = error(
    "{--host-from} {path}: the speed of its host isn't known: it holds too few of PyTorch's ops, or they disagree.",
    "Record a step of any eager PyTorch job on that machine, with CPU activities.",
)
TIME_WITHOUT_UNIT = error("{--unprofiled-step} {time!r} is no time.", "Give a unit too: 12.3ms.")

name_templates(globals())
