"""The loop of a serving engine: which requests each step works on, and how long it takes."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tracekit.arrays import Floats, Ints
from tracekit.compiled import compile_lazily
from tracekit.served.requests import Requests
from tracekit.served.step_table import EngineStepTable

Phase = Literal["both", "prefill", "decode"]
PHASES: dict[Phase, int] = {"both": 0, "prefill": 1, "decode": 2}
GAP_BINS = 1 << 15
COARSE_BITS = 8
"""Log2 of the width of the coarse half of the bins of gaps between tokens, over that of the fine half."""
PREFILL_ONLY, DECODE_ONLY = 1, 2


@dataclass(frozen=True, slots=True)
class Scheduler:
    """How an engine forms its steps.

    Attributes:
        max_tokens: New tokens of a step at most.
        max_sequences: Sequences that run at once at most.
        pages: Pages of the cache.
        page_tokens: Tokens of a page.
        mixes: Whether prompts join steps that decode; else a step that prefills does nothing else.
        chunks: Whether a prompt may be split over steps.
        draft_tokens: Tokens that a step of speculative decoding verifies of each sequence beyond the next one.
        tokens_per_step: Tokens that a sequence gets in a step that decodes.
        hit_rate: Fraction of each prompt that the prefix cache holds.
        front_end_us: What the client and the API server take for a request before the engine has it.
        front_end_token_us: The same for each token of its prompt.
    """

    max_tokens: int
    max_sequences: int
    pages: int
    page_tokens: int = 16
    mixes: bool = True
    chunks: bool = True
    draft_tokens: int = 0
    tokens_per_step: float = 1.0
    hit_rate: float = 0.0
    front_end_us: float = 0.0
    front_end_token_us: float = 0.0

    def scale_front_end(self, factor: float) -> "Scheduler":
        """Return the scheduler behind a front end that takes a multiple of the time."""
        return replace(
            self,
            front_end_us=self.front_end_us * factor,
            front_end_token_us=self.front_end_token_us * factor,
        )


@dataclass(frozen=True, slots=True)
class ServedRequests:
    """When the requests were served; times in us, in the order of the requests.

    Attributes:
        arrival_us: When each was sent.
        first_us: When its first token was there.
        last_us: When its last token was there.
        gap_counts: How often tokens came how long after the one before, by bin.
        gap_width_us: Width of the first half of the bins.
        steps: Steps of the engine.
        preemptions: How often a sequence lost its pages.
        busy_us: Sum of the steps.
        joules: What a GPU takes for them.
        most_pages: Pages in use at most.
        prefilled_tokens: Tokens that were computed as prompts, again after a preemption.
    """

    requests: Requests
    arrival_us: Floats
    first_us: Floats
    last_us: Floats
    gap_counts: Ints
    gap_width_us: float
    steps: int
    preemptions: int
    busy_us: float
    joules: float
    most_pages: int
    prefilled_tokens: int

    def compute_gap_us(self, percentile: float) -> float:
        """Return the time between two tokens of a sequence at a percentile; 0 where no request has two."""
        cumulated = np.cumsum(self.gap_counts)
        if not cumulated[-1]:
            return 0.0
        place = int(np.searchsorted(cumulated, percentile / 100 * cumulated[-1]))
        fine = min(place, GAP_BINS)
        return float(
            (fine + 0.5 * (place < GAP_BINS) + (1 << COARSE_BITS) * max(place - GAP_BINS + 0.5, 0)) * self.gap_width_us
        )


def run_engine(
    requests: Requests, scheduler: Scheduler, table: EngineStepTable, concurrency: int = 0, phase: Phase = "both"
) -> ServedRequests:
    """Serve requests, step by step.

    Args:
        requests: What is asked; each must fit into the cache by itself.
        scheduler: How steps are formed.
        table: How long they take.
        concurrency: Requests under way at any time, where each is sent when another ends; 0 sends them as they arrive.
        phase: Whether the engine prefills, decodes what others prefilled, or both.
    """
    count = requests.input_tokens.size
    arrival_us = np.zeros(count) if concurrency else requests.arrival_us.copy()
    first_us, last_us = np.zeros(count), np.zeros(count)
    gap_counts = np.zeros(2 * GAP_BINS, np.int64)
    gap_width_us = max(float(table.step_us.min()), 1.0) / 100
    cached = np.floor(requests.input_tokens * scheduler.hit_rate / scheduler.page_tokens).astype(np.int64)
    front_end_us: Floats = np.full(count, scheduler.front_end_us, np.float64)
    front_end_us += scheduler.front_end_token_us * requests.input_tokens
    setting = np.array(
        [
            scheduler.max_tokens,
            scheduler.max_sequences,
            scheduler.pages,
            scheduler.page_tokens,
            scheduler.mixes,
            scheduler.chunks,
            scheduler.draft_tokens,
            concurrency,
            PHASES[phase],
            table.new_tokens.size,
            table.sequences.size,
            table.contexts.size,
        ],
        np.int64,
    )
    counted, sums = np.zeros(4, np.int64), np.zeros(2)
    _run_steps(
        count,
        setting,
        np.array([scheduler.tokens_per_step, table.pair_us, 1 / gap_width_us, 1 / scheduler.page_tokens]),
        requests.input_tokens,
        requests.output_tokens,
        np.minimum(cached * scheduler.page_tokens, requests.input_tokens - 1),
        table.new_tokens,
        table.sequences,
        table.contexts,
        np.concatenate(
            [1 / np.diff(axis, append=np.inf) for axis in (table.new_tokens, table.sequences, table.contexts)]
        ),
        np.concatenate([[0.0], 1 / np.arange(1, max(scheduler.max_sequences, scheduler.draft_tokens) + 2)]),
        table.pairs,
        np.ascontiguousarray(table.step_us).reshape(-1),
        np.ascontiguousarray(table.step_joules).reshape(-1),
        arrival_us,
        np.maximum.accumulate(arrival_us + front_end_us),
        front_end_us,
        first_us,
        last_us,
        gap_counts,
        counted,
        sums,
        np.zeros(6 * count, np.int64),
        np.zeros(2 * count),
    )
    steps, preemptions, most_pages, prefilled = map(int, counted)
    busy_us, joules = map(float, sums)
    return ServedRequests(
        requests, arrival_us, first_us, last_us, gap_counts, gap_width_us, steps, preemptions, busy_us, joules,
        most_pages, prefilled,
    )  # fmt: skip


@compile_lazily
def _run_steps(  # noqa: C901  # a loop that is compiled calls no other function
    count: int,
    setting: Ints,
    factors: Floats,
    input_tokens: Ints,
    output_tokens: Ints,
    cached: Ints,
    axis_tokens: Floats,
    axis_sequences: Floats,
    axis_contexts: Floats,
    steepness: Floats,
    inverse: Floats,
    table_pairs: Floats,
    step_us: Floats,
    step_joules: Floats,
    arrival_us: Floats,
    ready_us: Floats,
    front_end_us: Floats,
    first_us: Floats,
    last_us: Floats,
    gap_counts: Ints,
    counted: Ints,
    sums: Floats,
    state: Ints,
    times: Floats,
) -> int:  # pragma: no cover - compiled
    max_tokens, max_sequences, pages, page_tokens = setting[0], setting[1], setting[2], setting[3]
    mixes, chunks, draft, concurrency, phase = setting[4], setting[5], setting[6], setting[7], setting[8]
    n_tokens, n_sequences, n_contexts = setting[9], setting[10], setting[11]
    tokens_per_step, pair_us, gaps_a_us, pages_a_token = factors[0], factors[1], factors[2], factors[3]
    # Rows of the state: tokens in the cache, tokens to prefill, tokens given, pages, who runs, who waits again.
    held, goal, given, owned, running, again = 0, count, 2 * count, 3 * count, 4 * count, 5 * count
    last_token, carry = 0, count  # rows of the times
    now = 0.0
    ready = done = following = n_running = n_again = used = 0
    sent = min(concurrency, count) if concurrency > 0 else count
    while done < count:
        if n_running == 0 and n_again == 0 and following == ready:
            now = max(now, ready_us[ready])
        while ready < sent and ready_us[ready] <= now:
            ready += 1
        budget, preempted = max_tokens, counted[1]
        # Pages for the next tokens; the last to come goes first where they run out.
        place = 0
        while place < n_running:
            i = state[running + place]
            if state[held + i] >= state[goal + i]:
                needed = 0
                while (state[owned + i] + needed) * page_tokens <= state[held + i] + draft:
                    needed += 1
                while needed > pages - used and n_running > max(place, 1):
                    n_running -= 1
                    other = state[running + n_running]
                    used -= state[owned + other]
                    state[owned + other] = 0
                    state[held + other] = 0
                    state[goal + other] = input_tokens[other] + state[given + other]
                    state[again + n_again] = other
                    n_again += 1
                    counted[1] += 1
                if needed > 0 and place < n_running:
                    used += needed
                    state[owned + i] += needed
                budget -= mixes * (1 + draft)
            place += 1
        prompt, pairs = 0, 0.0
        place = 0
        # Prompts that have begun, then those that wait.
        while place < n_running:
            i = state[running + place]
            left = state[goal + i] - state[held + i]
            if left > 0 and budget > 0:
                part = min(left, budget)
                pairs += part * (state[held + i] + 0.5 * part)
                prompt += part
                budget -= part
                state[held + i] += part
                if state[held + i] == state[goal + i]:
                    times[last_token + i] = -1.0 - times[last_token + i]
            place += 1
        may_admit = n_running == 0 or preempted == counted[1]
        while may_admit and n_running < max_sequences and (n_again > 0 or following < ready):
            i = state[again + n_again - 1] if n_again > 0 else following
            if n_again == 0:
                state[goal + i] = input_tokens[i]
            start = cached[i]
            if phase == DECODE_ONLY and state[given + i] == 0:
                start = input_tokens[i]
            left = state[goal + i] - start
            part = min(left, budget)
            whole = int(state[goal + i] * pages_a_token)
            while whole * page_tokens <= state[goal + i]:
                whole += 1
            if whole > pages - used or (left > 0 and part <= 0):
                break
            if part < left and chunks == 0 and prompt > 0:
                break
            if chunks == 0:
                part = left
            used += whole
            state[owned + i] = whole
            state[held + i] = start + part
            pairs += part * (start + 0.5 * part)
            prompt += part
            budget -= part
            if left == 0:
                state[given + i] = 1
                first_us[i] = arrival_us[i]
                times[last_token + i] = arrival_us[i]
                budget -= mixes * (1 + draft)
            elif part == left:
                times[last_token + i] = -1.0 - times[last_token + i]
            state[running + n_running] = i
            n_running += 1
            if n_again > 0:
                n_again -= 1
            else:
                following += 1
        if n_running == 0:
            return 1
        counted[2] = max(counted[2], used)
        counted[3] += prompt
        # The sequences that decode: all whose prompt was whole before this step.
        decoding, context = 0, 0
        for place in range(n_running):
            i = state[running + place]
            if state[held + i] >= state[goal + i] and times[last_token + i] >= 0.0 and state[given + i] > 0:
                decoding += 1
                context += state[held + i]
        if mixes == 0 and prompt > 0:
            decoding, context = 0, 0
        # The step's time: linear between the points of the table, and on beyond the last two.
        tokens = float(prompt + decoding * draft)
        mean = context * inverse[decoding]
        a = 0
        while a < n_tokens - 2 and axis_tokens[a + 1] < tokens:
            a += 1
        b = 0
        while b < n_sequences - 2 and axis_sequences[b + 1] < decoding:
            b += 1
        c = 0
        while c < n_contexts - 2 and axis_contexts[c + 1] < mean:
            c += 1
        fa = (tokens - axis_tokens[a]) * steepness[a]
        fb = (decoding - axis_sequences[b]) * steepness[n_tokens + b]
        fc = (mean - axis_contexts[c]) * steepness[n_tokens + n_sequences + c]
        took = 0.0
        for corner in range(8):
            ia, ib, ic = corner & 1, (corner >> 1) & 1, corner >> 2
            weight = (fa if ia else 1.0 - fa) * (fb if ib else 1.0 - fb) * (fc if ic else 1.0 - fc)
            corner_place = ((a + ia) * n_sequences + b + ib) * n_contexts + c + ic
            took += weight * step_us[corner_place]
            sums[1] += weight * step_joules[corner_place]
        if prompt > 0:
            a = 0
            while a < n_tokens - 2 and axis_tokens[a + 1] < prompt:
                a += 1
            fa = (prompt - axis_tokens[a]) * steepness[a]
            took += pair_us * (pairs - table_pairs[a] - fa * (table_pairs[a + 1] - table_pairs[a]))
        took = max(took, 1.0)
        now += took
        sums[0] += took
        counted[0] += 1
        # Tokens, and who is done.
        kept = 0
        for place in range(n_running):
            i = state[running + place]
            is_done = False
            if state[held + i] >= state[goal + i]:
                if times[last_token + i] < 0.0:
                    before = -1.0 - times[last_token + i]
                    if state[given + i] == 0:
                        first_us[i] = now
                    else:
                        gap = int((now - before) * gaps_a_us)
                        gap_bin = gap if gap < GAP_BINS else GAP_BINS + ((gap - GAP_BINS) >> COARSE_BITS)
                        gap_counts[min(gap_bin, 2 * GAP_BINS - 1)] += 1
                    state[given + i] += 1
                    times[last_token + i] = now
                    is_done = state[given + i] >= output_tokens[i] or phase == PREFILL_ONLY
                elif state[given + i] >= output_tokens[i]:
                    is_done = True
                elif mixes == 1 or prompt == 0:
                    times[carry + i] += tokens_per_step
                    new = min(int(times[carry + i]), output_tokens[i] - state[given + i])
                    times[carry + i] -= new
                    gap = int((now - times[last_token + i]) * inverse[new] * gaps_a_us) if new > 0 else 0
                    gap_bin = gap if gap < GAP_BINS else GAP_BINS + ((gap - GAP_BINS) >> COARSE_BITS)
                    gap_counts[min(gap_bin, 2 * GAP_BINS - 1)] += new
                    state[given + i] += new
                    state[held + i] += new
                    state[goal + i] = state[held + i]
                    times[last_token + i] = now
                    is_done = state[given + i] >= output_tokens[i]
            if is_done:
                last_us[i] = now
                used -= state[owned + i]
                done += 1
                if sent < count:
                    arrival_us[sent] = now
                    ready_us[sent] = max(now + front_end_us[sent], ready_us[sent - 1])
                    sent += 1
            else:
                state[running + kept] = i
                kept += 1
        n_running = kept
    return 0
