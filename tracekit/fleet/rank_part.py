"""A rank as a part of its job: its tables on disk, placed in the job, with what edits make of it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tracekit.arrays import Ints
from tracekit.errors import WhatIfError
from tracekit.fleet.join import PlacedRank
from tracekit.fleet.rank_files import StoredRank, read_rank, read_table, write_rank, write_table
from tracekit.fleet.summary import RankTask, read_trace, summarize_rank
from tracekit.graph import Graph
from tracekit.graph.build import build_graph_parts
from tracekit.graph.graph import assemble_graph, find_unexplained
from tracekit.prediction.part import Part
from tracekit.program import Program, StepTables
from tracekit.replay.compressed import JobLinks, RankLinks
from tracekit.replay.step_time import StepScale
from tracekit.trace import RankTrace
from tracekit.whatif.registry import edit_program
from tracekit.workload import steps as step_table
from tracekit.workload.kernel_table import mark_tf32


@dataclass(frozen=True, slots=True)
class FileStore:
    """Keeps tables of a rank in its folder, a path or URI."""

    folder: str

    def keep(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """Return the table of a name; make it where it isn't there."""
        try:
            return read_table(self.folder, name)
        except FileNotFoundError:
            table = make()
            write_table(self.folder, name, table)
            return table


@dataclass(frozen=True, slots=True)
class RankPlace:
    """A rank whose tables are on disk.

    Attributes:
        rank: The rank in its job.
        framework: The serving engine that ran it, and its version.
        accepted_tokens: Tokens that each sequence gets in a step of speculative decoding; None if unknown.
        edits: The what-if edits that find something to change on it.
    """

    rank: PlacedRank
    framework: tuple[str, str | None] | None = None
    accepted_tokens: float | None = None
    edits: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Folder of the rank's tables; edits have one of their own."""
        base = self.rank.summary.task.folder
        return f"{base}/edited" if self.edits else base

    def open(self) -> Part:
        """Read the rank's tables, or make them again where another worker had them."""
        program = self._read_edited() if self.edits else self._read_placed()
        return Part(program, FileStore(self.folder), self.read_whole)

    def read_whole(self) -> Program:
        """Read the rank's trace again, and return the program with all that it tells, on the trace's own clock."""
        return self.open_whole(read_trace(self.rank.summary.task)[0])

    def open_whole(self, trace: RankTrace) -> Program:
        """Return the program with all that a trace tells, on the trace's own clock.

        Args:
            trace: The rank's trace, as :func:`tracekit.fleet.summary.read_trace` returns it.
        """
        return self._edit(self._open_recorded(trace)[0])

    def _edit(self, program: Program) -> Program:
        return [program, *(one.program for one in edit_program(program, self.edits))][-1]

    def _open_recorded(self, trace: RankTrace) -> tuple[Program, Ints]:
        """Return the program without edits, and the nodes that start when they were measured."""
        task = self.rank.summary.task
        kernels, marks = _read_tables(task).kernels, step_table.list_step_edges(self.rank.summary.steps)
        parts = build_graph_parts(trace, kernels, marks.clear() if task.without_marks else marks, task.without)
        graph = assemble_graph(parts)
        stored = StoredRank(kernels, graph, find_unexplained(graph.vertex, graph.first, parts.released))
        return self._place(stored, replace(self.rank, shift_ns=0), trace), stored.unexplained

    def _read_placed(self) -> Program:
        return self._place(_read_tables(self.rank.summary.task), self.rank, self.rank.summary.trace)

    def _place(self, stored: StoredRank, rank: PlacedRank, trace: RankTrace) -> Program:
        kernels = _place_kernels(stored.kernels, stored.graph, rank)
        graph = _place_graph(stored.graph, stored.unexplained, rank)
        return self._make_program(kernels, graph, trace, rank.links)

    def _make_program(self, kernels: pl.DataFrame, graph: Graph, trace: RankTrace, links: JobLinks) -> Program:
        steps = self.rank.steps
        chosen = steps.filter(pl.col("step").is_in(self.rank.chosen_steps["step"].implode()))
        return Program(
            tables=StepTables(kernels, steps, chosen, steps, is_one_of_several=True),
            graph=graph,
            collectives=None,
            ranks=(trace,),
            step_scale=StepScale(np.empty(0), np.empty(0)),
            kernel_factor=np.ones(kernels.height),
            framework=self.framework,
            accepted_tokens=self.accepted_tokens,
            links=links,
        )

    def _read_edited(self) -> Program:
        """Read the edited rank from its folder; edit and write it the first time."""
        try:
            stored = read_rank(self.folder)
        except FileNotFoundError:
            self._write_edited()
            stored = read_rank(self.folder)
        arrivals, ends = (read_table(self.folder, name) for name in ("arrivals", "ends"))
        activities = RankLinks(arrivals["activity"].to_numpy(), ends["activity"].to_numpy())
        links = JobLinks(activities, ends["rendezvous"].to_numpy(), arrivals["rendezvous"].to_numpy())
        kernels, trace = stored.kernels.drop("kernel_factor", "kept_ns"), self.rank.summary.trace
        graph = _shift_graph(stored.graph, stored.unexplained, self.rank.shift_ns)
        graph = replace(graph, kept_ns=stored.kernels["kept_ns"].to_numpy())
        program = self._make_program(kernels, graph, trace, links)
        return replace(program, kernel_factor=stored.kernels["kernel_factor"].to_numpy(), edits=self.edits)

    def _write_edited(self) -> None:
        trace, _ = read_trace(self.rank.summary.task)
        recorded, unexplained = self._open_recorded(trace)
        edited = self._edit(recorded)
        links = edited.links
        assert links is not None
        for name, activity, rendezvous in (
            ("arrivals", links.activities.arrival_activity, links.arrivals),
            ("ends", links.activities.end_activity, links.rendezvous),
        ):
            write_table(self.folder, name, pl.DataFrame({"activity": activity, "rendezvous": rendezvous}))
        table = edited.kernels.with_columns(kernel_factor=edited.kernel_factor, kept_ns=edited.graph.kept_ns)
        write_rank(self.folder, StoredRank(table, edited.graph, unexplained))


@dataclass(frozen=True, slots=True)
class EditedRank:
    """What edits find on one rank.

    Attributes:
        errors: Why each edit changes nothing; None where it does.
        uncounted: Rows of the kernels that belong to no step any more.
    """

    errors: tuple[WhatIfError | None, ...]
    uncounted: Ints


def try_edits(place: RankPlace) -> EditedRank:
    """Apply each of a rank's edits to what those before it that changed something left."""
    program = replace(place, edits=()).read_whole()
    before = program.kernels["step"].is_null()
    errors: list[WhatIfError | None] = []
    for edit in place.edits:
        try:
            (found,) = edit_program(program, [edit])
        except WhatIfError as error:
            errors.append(error)
        else:
            program = found.program
            errors.append(None)
    uncounted = (program.kernels["step"].is_null() & ~before).arg_true().cast(pl.Int64).to_numpy()
    return EditedRank(tuple(errors), uncounted)


def _read_tables(task: RankTask) -> StoredRank:
    try:
        return read_rank(task.folder)
    except FileNotFoundError:
        again = summarize_rank(task)
        error = getattr(again, "error", None)
        if error is not None:
            raise error from None
        return read_rank(task.folder)


def _place_kernels(kernels: pl.DataFrame, graph: Graph, rank: PlacedRank) -> pl.DataFrame:
    """Number the steps as the job does, and split the time of collectives."""
    own = rank.summary.steps["step"]
    work, wait = graph.lag_ns[graph.run_edge], (kernels["dur_ns"].to_numpy() - graph.lag_ns[graph.run_edge])
    rows = rank.collectives["place"].to_numpy()
    work[rows], wait[rows] = rank.collectives["dur_ns"].to_numpy(), rank.collectives["wait_ns"].to_numpy()
    step = pl.col("step").replace_strict(own, rank.steps["step"], default=None, return_dtype=pl.Int64)
    return mark_tf32(
        kernels.select(
            pl.lit(rank.number, pl.Int64).alias("rank"),
            pl.all().exclude("step", "dur_ns"),
            step,
            dur_ns=work,
            wait_ns=wait,
        ),
        rank.tf32_names,
    )


def _place_graph(graph: Graph, unexplained: Ints, rank: PlacedRank) -> Graph:
    """Move a graph to the job's clock, and set the time of collectives."""
    rows = rank.collectives["place"].to_numpy()
    lag, kept = graph.lag_ns.copy(), graph.kept_ns.copy()
    lag[graph.run_edge[rows]] = rank.collectives["run_ns"].to_numpy()
    kept[rows] = rank.collectives["kept_ns"].to_numpy()
    return _shift_graph(replace(graph, lag_ns=lag, kept_ns=kept), unexplained, rank.shift_ns)


def _shift_graph(graph: Graph, unexplained: Ints, shift_ns: int) -> Graph:
    """Move a graph to another clock, on which some nodes start when they were measured."""
    nodes = replace(graph.nodes, start_ns=graph.nodes.start_ns + shift_ns, end_ns=graph.nodes.end_ns + shift_ns)
    release = np.zeros_like(graph.release_ns)
    # Vertices 2 n and 2 n + 1 are the start and the end of node n.
    release[graph.vertex[2 * unexplained]] = nodes.start_ns[unexplained]
    return replace(graph, nodes=nodes, release_ns=release)
