"""Write the dependency graph as MLCommons Chakra's execution traces, a file per rank, for simulators like ASTRA-sim."""

from tracekit.export.chakra.encode import encode_nodes
from tracekit.export.chakra.select import build_node_table
from tracekit.program import Program
from tracekit.replay.engine import Timeline


def render_execution_traces(program: Program, timeline: Timeline) -> dict[str, bytes]:
    """Return the files by name, ``rank.0.et``.

    Args:
        program: The program, of which the chosen steps are written.
        timeline: Its replay, with the durations to write.

    Raises:
        StepError: Nothing ran on the GPU in the chosen steps.
        OutputError: The package ``protobuf`` isn't installed.
    """
    nodes = build_node_table(program, timeline)
    ranks = nodes.partition_by("rank", maintain_order=True, as_dict=True)
    return {f"rank.{max(rank, 0)}.et": encode_nodes(rows, program.kernels) for (rank,), rows in sorted(ranks.items())}
