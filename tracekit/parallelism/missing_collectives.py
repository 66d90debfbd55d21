"""Find the collectives that a job would have in another layout and that its trace lacks."""

from collections.abc import Callable
from functools import partial

from tracekit.messages import Message, layouts
from tracekit.parallelism.compressions import parse_compression
from tracekit.parallelism.context_parallel import insert_key_exchanges, insert_ring_exchanges
from tracekit.parallelism.ddp import (
    InsertCompressedAllreduces,
    insert_expert_gradient_allreduces,
    insert_gradient_allreduces,
)
from tracekit.parallelism.expert_parallel import insert_expert_alltoalls
from tracekit.parallelism.fsdp import InsertNarrowScatters, insert_expert_fsdp_collectives, insert_fsdp_collectives
from tracekit.parallelism.fsdp_pipeline import insert_stage_reduce_scatters, replace_fsdp_collectives
from tracekit.parallelism.inserted import Insertion
from tracekit.parallelism.layout import Layout, LayoutError, adds_expert_parallelism
from tracekit.parallelism.local_sgd import AverageParameters
from tracekit.parallelism.process_groups import is_training
from tracekit.parallelism.shared_matrices import ShareMatrices, multiplies_matrices
from tracekit.parallelism.table_exchange import InsertTableExchange
from tracekit.parallelism.tensor_parallel import (
    insert_adapter_allreduce,
    insert_layer_allreduces,
    insert_sequence_exchanges,
    trains_adapters,
)
from tracekit.parallelism.zero import insert_expert_optimizer_exchange, insert_optimizer_exchange
from tracekit.program import Program

Inserter = Callable[[Program], Insertion]


def find_missing_collectives(program: Program, old: Layout, new: Layout) -> tuple[Inserter, ...]:
    """Find the functions that insert the missing collectives, in the order in which to call them.

    Args:
        program: The program.
        old: The trace's layout.
        new: Another one.

    Raises:
        LayoutError: FSDP or a sharded optimizer was requested for inference.
    """
    _refuse_sharding(program, old, new)
    splits = new.optimizer_ranks > old.optimizer_ranks or new.tp > old.tp
    shared: tuple[Inserter, ...] = (ShareMatrices(old, new),) if splits and multiplies_matrices(program.kernels) else ()
    exchanges: Inserter = insert_sequence_exchanges if new.sequence_parallel else insert_layer_allreduces
    of_experts = adds_expert_parallelism(old, new)
    if of_experts and new.mixes_expert_ranks:
        exchanges = partial(insert_sequence_exchanges, experts_apart=True)
    parts: tuple[Inserter, ...] = (*shared, exchanges) if old.tp == 1 < new.tp else shared
    if old.tp == 1 < new.tp and trains_adapters(program):
        parts = (*parts, insert_adapter_allreduce)
    if old.cp == 1 < new.cp:
        parts = (*parts, insert_ring_exchanges if new.cp_ring else insert_key_exchanges)
    if new.tables is not None:
        parts = (*parts, InsertTableExchange(new))
    if of_experts:
        senders = new.tp if new.mixes_expert_ranks else 1
        parts = (*parts, partial(insert_expert_alltoalls, ranks=new.ep, senders=senders))
    if old.sharded and old.pp == 1 < new.pp:
        return (*parts, replace_fsdp_collectives)
    if not (old.data_ranks == 1 < new.data_ranks and is_training(program)):
        return parts
    if new.sharded and new.pp > 1:
        return (*parts, insert_stage_reduce_scatters)
    return (*parts, _choose_gradient_exchange(new, of_experts=of_experts))


def _choose_gradient_exchange(new: Layout, *, of_experts: bool) -> Inserter:
    """Choose what inserts the exchange of gradients between new replicas; ``of_experts`` if these split experts."""
    if new.sync_every > 1:
        return AverageParameters(new.sync_every, new.sync_within)
    if new.gradient_compression:
        compression = parse_compression(new.gradient_compression)
        assert compression is not None
        if new.sharded:
            return InsertNarrowScatters(compression.dtype)
        return InsertCompressedAllreduces(compression, new.data_ranks)
    if new.sharded:
        return insert_expert_fsdp_collectives if of_experts else insert_fsdp_collectives
    if new.zero:
        return insert_expert_optimizer_exchange if of_experts else insert_optimizer_exchange
    return insert_expert_gradient_allreduces if of_experts else insert_gradient_allreduces


def _refuse_sharding(program: Program, old: Layout, new: Layout) -> None:
    if new.sharded and not old.sharded and not is_training(program):
        raise LayoutError(layouts.FSDP_OF_INFERENCE())
    if new.zero and not is_training(program):
        raise LayoutError(layouts.ZERO_WITHOUT_OPTIMIZER())
    if (new.gradient_compression or new.sync_every > 1) and not is_training(program):
        raise LayoutError(layouts.EXCHANGE_OF_INFERENCE())
    if new.tables is not None and new.sync_every > 1:
        raise LayoutError(layouts.AVERAGES_OF_WHOLE_REPLICAS(layout=str(new)))


def insert_all(program: Program, inserters: tuple[Inserter, ...]) -> tuple[Program, tuple[Message, ...]]:
    """Insert all missing collectives into a program; return it and what each insertion assumed.

    Args:
        program: The program.
        inserters: As :func:`find_missing_collectives` returns them.

    Raises:
        LayoutError: The trace doesn't reveal what to insert, or several ranks were read.
    """
    if len(program.ranks) > 1:
        raise LayoutError(layouts.INSERTION_INTO_SEVERAL_RANKS())
    notes: list[Message] = []
    for adder in inserters:
        added = adder(program)
        program = added.program
        notes.append(added.note)
    return program, tuple(notes)
