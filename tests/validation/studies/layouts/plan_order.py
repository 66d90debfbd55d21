"""Published pairs of which one was faster, as the prices of sharding plans order them.

- **Chosen plans**: HugeCTR's plan for MLPerf's DLRM-DCNv2 on each system, beside the two plain ones that its script
  has: every table split by rows over all ranks (uniform), or whole tables one after the other (round robin). Times of
  these weren't published; that the chosen one is at least as fast is taken from its choice.
- **Placements**: rows in the host's memory, with and without a cache on the GPU, the same look-ups.
- **Widths**: what a column shard of a table looks up, narrower or wider rows of as many look-ups.
- **GPUs**: whole tables dealt out by size over more or fewer GPUs. Of the published step the prices are a tenth to a
  half: the rest is TensorFlow's look-ups, which aren't FBGEMM's, and its dense layers. So the step on more GPUs is
  predicted from that on fewer, as one from a trace is: what isn't exchanges goes with the look-ups and updates of the
  slowest rank.

A pair is ordered rightly if the faster one is predicted faster. No table of several plans of one model on one cluster,
with a time for each, was found: papers time tables that aren't public, or mean times of drawn tables.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from tests.validation.studies.kernels import published_lookups
from tests.validation.studies.whole_jobs.recommenders import DCNV2
from tests.validation.study import format_table, list_sources, read_published
from tracekit.arrays import Ints
from tracekit.comm import load_cluster
from tracekit.models.lookups import ZipfPattern
from tracekit.sharding import PlannedTable, ShardingPlan, ShardingSetting
from tracekit.sharding.candidates import ComputeKernel, ShardingType, TableOption
from tracekit.sharding.loads import Exchange, price_options
from tracekit.sharding.planner import evaluate_assignment
from tracekit.sharding.search import Assignment
from tracekit.sharding.tables import TableDefaults, read_table_file

INPUTS = ()
HALF_BYTES = 2
EVERYWHERE = "all"
"""Owners of a table with a copy on each rank."""
SAMPLES = 65536
"""Samples of all ranks in distributed-embeddings' steps."""
ALPHA = 1.05
HEADINGS = ("source", "case", "faster", "slower", "published", "predicted", "ordered")
CARRIED = ("model", "GPUs", "step", "to GPUs", "published", "predicted", "error")
SUMMARY = ("pairs of", "pairs", "ordered rightly", "published ratio, median", "predicted")

Way = tuple[TableOption, Ints]
"""How a table is sharded, and the ranks of its shards."""


class Pair(NamedTuple):
    """Two of which one was faster.

    Attributes:
        case: What both have in common.
        published: Time of the slower one over the faster one's; None where only the order is known.
        predicted: The same as predicted.
    """

    kind: str
    source: str
    case: str
    faster: str
    slower: str
    published: float | None
    predicted: float

    @property
    def is_right(self) -> bool:
        """Whether the faster one is predicted faster."""
        return self.predicted > 1


class CarriedStep(NamedTuple):
    """A published step, predicted from the published one on fewer GPUs; times in milliseconds."""

    source: str
    model: str
    few: int
    many: int
    few_ms: float
    many_ms: float
    predicted_ms: float

    @property
    def error_pct(self) -> float:
        """Error of the prediction."""
        return 100 * (self.predicted_ms / self.many_ms - 1)


def run() -> str:
    """Return the share of pairs that are ordered rightly by kind, then every pair."""
    pairs = [*compare_chosen_plans(), *compare_lookups(), *compare_clusters()]
    names = ("sharding_plans", "table_lookups", "table_scaling")
    return "\n".join(
        (
            "# Order of plans\n",
            format_table(SUMMARY, list(summarise(pairs))),
            format_table(HEADINGS, (format_pair(pair) for pair in pairs)),
            "\n## Steps on more GPUs from those on fewer\n",
            format_table(CARRIED, list(format_steps([*carry_steps()]))),
            list_sources(*names),
        )
    )


def summarise(pairs: Sequence[Pair]) -> Iterator[tuple[str, ...]]:
    """Yield the pairs of each kind, and all."""
    for kind in [*dict.fromkeys(pair.kind for pair in pairs), "all"]:
        chosen = [pair for pair in pairs if kind in (pair.kind, "all")]
        right = sum(pair.is_right for pair in chosen)
        known = [pair.published for pair in chosen if pair.published is not None]
        ratio = f"{median(known):.2f}" if known else "–"
        share = f"{right}, {100 * right / len(chosen):.0f} %"
        yield kind, str(len(chosen)), share, ratio, f"{median(pair.predicted for pair in chosen):.2f}"


def format_pair(pair: Pair) -> tuple[str, ...]:
    """Return the cells of a pair."""
    published = "–" if pair.published is None else f"{pair.published:.2f}"
    ordered = "yes" if pair.is_right else "no"
    return pair.source, pair.case, pair.faster, pair.slower, published, f"{pair.predicted:.2f}", ordered


def format_steps(steps: Sequence[CarriedStep]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each step, and of the median of their absolute errors."""
    for one in steps:
        times = (f"{one.few_ms:.3g} ms", str(one.many), f"{one.many_ms:.3g} ms", f"{one.predicted_ms:.3g} ms")
        yield one.model, str(one.few), *times, f"{one.error_pct:+.0f} %"
    yield "median", *[""] * 5, f"{median(abs(one.error_pct) for one in steps):.0f} %"


def compare_chosen_plans() -> Iterator[Pair]:
    """Yield a pair for each plan that a submitter could have chosen, and didn't."""
    tables, _ = read_table_file(DCNV2, TableDefaults())
    for row in read_published("sharding_plans").iter_rows(named=True):
        setting = ShardingSetting(load_cluster(row["cluster"]), row["batch"], sum_bytes=HALF_BYTES)
        chosen = time_plan(tables, parse_owners(row["owners"], setting), setting)
        for name, ways in list_plain_plans(len(tables), setting).items():
            predicted = time_plan(tables, ways, setting) / chosen
            yield Pair("chosen plans", row["source"], row["cluster"], row["way"], name, None, predicted)


def parse_owners(text: str, setting: ShardingSetting) -> list[Way]:
    """Parse who holds each table: ``3`` or ``1+2`` of the ranks, or of the nodes of several, or ``all`` by copies."""
    return [_parse_owner(one, setting) for one in text.split()]


def _parse_owner(text: str, setting: ShardingSetting) -> Way:
    everyone = np.arange(setting.ranks)
    if text == EVERYWHERE:
        return TableOption(ShardingType.DATA_PARALLEL, ComputeKernel.DENSE), everyone
    owners = np.array([int(one) for one in text.split("+")])
    if setting.cluster.nodes == 1:
        return _split_rows(owners)
    ranks = everyone.reshape(setting.cluster.nodes, -1)[owners].ravel()
    return TableOption(ShardingType.TABLE_ROW_WISE, parts=owners.size), ranks


def _split_rows(ranks: Ints) -> Way:
    kind = ShardingType.ROW_WISE if ranks.size > 1 else ShardingType.TABLE_WISE
    return TableOption(kind, parts=ranks.size if ranks.size > 1 else 0), ranks


def list_plain_plans(tables: int, setting: ShardingSetting) -> dict[str, list[Way]]:
    """List the two plans of HugeCTR's script that look at neither tables nor cluster."""
    everyone, nodes = np.arange(setting.ranks), setting.cluster.nodes
    rows = (TableOption(ShardingType.TABLE_ROW_WISE, parts=nodes), everyone) if nodes > 1 else _split_rows(everyone)
    whole = [_split_rows(np.array([table % setting.ranks])) for table in range(tables)]
    return {"uniform": [rows] * tables, "round_robin": whole}


def time_plan(tables: Sequence[PlannedTable], ways: Sequence[Way], setting: ShardingSetting) -> float:
    """Return the embedding time of a step, in microseconds."""
    return price_plan(tables, ways, setting).time_us


def price_plan(tables: Sequence[PlannedTable], ways: Sequence[Way], setting: ShardingSetting) -> ShardingPlan:
    """Return a plan of known ways and ranks with its times."""
    candidates = price_options(tables, [[option] for option, _ in ways], setting)
    assignment = Assignment(candidates, Exchange(setting))
    for table, (_, ranks) in enumerate(ways):
        assignment.put(table, 0, ranks)
    return evaluate_assignment("published", tables, assignment)


def compare_lookups() -> Iterator[Pair]:
    """Yield pairs of look-ups that differ in where the rows lie, or how wide they are."""
    rows = published_lookups.read_distinct().iter_rows(named=True)
    timed = [row | {"predicted_us": published_lookups.predict_case(row)[0]} for row in rows]
    for kind, name in (("placements", "placement"), ("widths", "width")):
        same = [key for key in timed[0] if key not in (name, "us", "predicted_us")]
        for one, other in combinations(timed, 2):
            if one[name] != other[name] and all(one[key] == other[key] for key in same):
                yield _pair_lookups(kind, name, one, other)


def _pair_lookups(kind: str, name: str, *rows: dict[str, Any]) -> Pair:
    fast, slow = sorted(rows, key=lambda row: row["us"])
    case = f"{fast['gpu']} {fast['phase']} {fast['optimizer'] or ''}".strip()
    ratios = (slow[time] / fast[time] for time in ("us", "predicted_us"))
    return Pair(kind, fast["source"], case, str(fast[name]), str(slow[name]), *ratios)


def carry_steps() -> Iterator[CarriedStep]:
    """Yield the steps of the same tables, dealt out by size, from those on fewer GPUs."""
    rows = read_published("table_scaling").sort("model", "gpus", maintain_order=True).iter_rows(named=True)
    for few, many in combinations([(row, *_price_dealt(row)) for row in rows], 2):
        (row, exchanged_ms, kernels_ms), (other, other_exchanged_ms, other_kernels_ms) = few, many
        if row["model"] == other["model"]:
            own_ms = max(row["ms"] - exchanged_ms, 0.0)
            predicted_ms = own_ms * other_kernels_ms / kernels_ms + other_exchanged_ms
            gpus, times = (row["gpus"], other["gpus"]), (row["ms"], other["ms"])
            yield CarriedStep(row["source"], row["model"], *gpus, *times, predicted_ms)


def compare_clusters() -> Iterator[Pair]:
    """Yield pairs of clusters for the same tables."""
    for one in carry_steps():
        is_faster = one.many_ms < one.few_ms
        names = (str(one.many), str(one.few)) if is_faster else (str(one.few), str(one.many))
        ratios = (one.few_ms / one.many_ms, one.few_ms / one.predicted_ms)
        yield Pair("GPUs", one.source, one.model, *names, *(ratio if is_faster else 1 / ratio for ratio in ratios))


def _price_dealt(row: dict[str, Any]) -> tuple[float, float]:
    """Predict exchanges and kernels of the slowest rank in ms; ranks read the indices of their tables themselves."""
    tables = read_model(row["model"])
    setting = ShardingSetting(load_cluster(row["cluster"]), SAMPLES // row["gpus"])
    option = TableOption(ShardingType.TABLE_WISE)
    plan = price_plan(tables, [(option, ranks) for ranks in deal_by_size(tables, setting.ranks)], setting)
    parts_ms = {part.name: part.time_us / 1e3 for part in plan.parts}
    return parts_ms["sums"] + parts_ms["gradients"], parts_ms["lookup"] + parts_ms["update"]


def read_model(model: str) -> list[PlannedTable]:
    """Read the tables of a published model."""
    kinds = read_published("embedding_models").filter(pl.col("model") == model).iter_rows(named=True)
    return [
        PlannedTable(
            f"kind_{number}_{place}",
            kind["rows"],
            kind["width"],
            kind["lookups"] / kind["features"],
            ZipfPattern(ALPHA),
            optimizer="adagrad",
            features=kind["features"],
        )
        for number, kind in enumerate(kinds)
        for place in range(kind["tables"])
    ]


def deal_by_size(tables: Sequence[PlannedTable], ranks: int) -> list[Ints]:
    """Deal whole tables out, the largest first: to the ranks forth, then back, and so on."""
    order = sorted(range(len(tables)), key=lambda table: -tables[table].weight_bytes)
    turn = [*range(ranks), *reversed(range(ranks))]
    owner = {table: turn[place % len(turn)] for place, table in enumerate(order)}
    return [np.array([owner[table]]) for table in range(len(tables))]
