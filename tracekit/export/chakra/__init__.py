"""Write the dependency graph as MLCommons Chakra's execution traces, a file per rank, for simulators like ASTRA-sim."""

from tracekit.export.chakra.encode import ALL_RANKS, compute_comm_sizes, encode_groups, encode_nodes, number_groups
from tracekit.export.chakra.select import build_node_table
from tracekit.program import Program
from tracekit.replay.engine import Timeline

GROUPS_FILE = "comm_groups.json"
"""Lists the ranks of process groups."""


def render_execution_traces(program: Program, timeline: Timeline) -> dict[str, bytes]:
    """Return the files by name: ``rank.0.et``, and ``GROUPS_FILE`` if there are process groups but that of all ranks.

    The chosen steps are written, with the durations of their replay, ``timeline``.

    Raises:
        StepError: Nothing ran on the GPU in the chosen steps.
        OutputError: The package ``protobuf`` isn't installed.
    """
    nodes = build_node_table(program, timeline)
    ranks = nodes.partition_by("rank", maintain_order=True, as_dict=True)
    sizes, groups = compute_comm_sizes(program.kernels), number_groups(program.kernels)
    files = {
        f"rank.{max(rank, 0)}.et": encode_nodes(rows, program.kernels, sizes, groups)
        for (rank,), rows in sorted(ranks.items())
    }
    if any(group.number != ALL_RANKS for group in groups.values()):
        files[GROUPS_FILE] = encode_groups(groups.values())
    return files
