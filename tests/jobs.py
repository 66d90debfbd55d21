"""Jobs of several ranks made by hand, for tests."""

from dataclasses import replace
from typing import Any

from tracekit.ingest.ranks import combine_ranks
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace


def job(*builders: TraceBuilder, world_size: int | None = None) -> Trace:
    """The ranks of one job, in order."""
    size = world_size or len(builders)
    return combine_ranks(
        [replace(builder.load().rank(), rank=number, world_size=size) for number, builder in enumerate(builders)]
    )


def served(*batches: str, kernel: float = 60) -> TraceBuilder:
    """What a serving engine launches every 100, under a mark of its own, each a kernel of some length."""
    builder = TraceBuilder()
    for start, name in zip(range(0, 100 * len(batches), 100), batches, strict=True):
        builder.annotation(name, start, 40).kernel("k", start + 20, kernel, launch=start + 10)
    return builder


def recorded(kind: str = "allreduce", nelems: int = 1000, ranks: str = "[0, 1]", name: str = "0") -> dict[str, Any]:
    """What torch.distributed notes on a collective's kernel."""
    size = ranks.count(",") + 1
    return {
        "Collective name": kind, "dtype": "Float", "In msg nelems": nelems, "Out msg nelems": nelems,
        "Group size": size, "Process Group Name": name, "Process Group Ranks": ranks,
    }  # fmt: skip


def gradient_step(gemm: float, end: float, clock: float = 0, **args: Any) -> TraceBuilder:
    """A product of some length from 10 on, then an all-reduce on another stream, 2 later, that ends at ``end``."""
    arrival = 10 + gemm + 2
    return (
        TraceBuilder()
        .kernel("gemm", clock + 10, gemm, launch=clock)
        .kernel(
            "ncclDevKernel_AllReduce", clock + arrival, end - arrival, launch=clock + 20, stream=9,
            **(recorded() | args),
        )
    )  # fmt: skip
