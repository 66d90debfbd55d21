"""Request of a plan of embedding tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from tracekit.bounds import MAX_COUNT
from tracekit.errors import RequestError
from tracekit.messages import layouts as sharding_messages
from tracekit.messages import requests as messages
from tracekit.request.option import Option, Panel, split_values
from tracekit.request.options.run import RunOptions, parse_time_us


@dataclass(frozen=True, kw_only=True)
class ShardRequest(RunOptions):
    """A plan of how embedding tables are sharded over clusters."""

    cluster: Annotated[
        str | Sequence[str],
        Option(
            "Cluster, such as 8xh100-sxm, or a TOML. `tracekit clusters` lists them.",
            "Clusters",
            short="-c",
            panel=Panel.TARGET,
        ),
    ] = ()
    table: Annotated[
        str | Sequence[str],
        Option(
            "Tables, in place of those of a file or trace: [COUNT*]ROWSxWIDTH[:POOLING[:ALPHA]], such as "
            "26*1000000x128:20.",
            "Embedding tables",
            "TABLE",
        ),
    ] = ()
    batch: Annotated[
        int | None,
        Option(
            "Samples of a rank in a step; default the trace's or file's.",
            "Samples",
            "N",
            minimum=1,
            maximum=MAX_COUNT,
        ),
    ] = None
    optimizer: Annotated[
        str | None,
        Option(
            "What updates the tables: sgd, adagrad, rowwise_adagrad, adam, ...; default the trace's or the file's, "
            "else rowwise_adagrad.",
            "Optimizer of the tables",
        ),
    ] = None
    data_type: Annotated[
        str | None,
        Option("Type of the weights: fp32 (default), fp16, bf16, int8 or fp8.", "Type of the weights", "TYPE"),
    ] = None
    dense_memory: Annotated[
        float,
        Option("GiB of a GPU that the rest of the model takes.", "GiB of other layers", "GIB", minimum=0, maximum=1e6),
    ] = 0.0
    dense_time: Annotated[
        str | None,
        Option(
            "Forward pass of the other layers, such as 3ms: hides the exchange of the next batch's indices.",
            "Time of other layers",
            "TIME",
        ),
    ] = None

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters."""
        return split_values(self.cluster)

    def count_tables(self) -> int:
        """Count the tables that are given here."""
        from tracekit.models.dlrm import parse_table_spec

        return sum(parse_table_spec(text).count for text in split_values(self.table))

    @property
    def dense_time_us(self) -> float:
        """The forward pass of the other layers."""
        return 0.0 if self.dense_time is None else parse_time_us(self.dense_time)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        from tracekit.comm import load_cluster
        from tracekit.models.dlrm import parse_table_spec
        from tracekit.sharding.tables import WEIGHT_BYTES
        from tracekit.workload.ops.table_lookups import OPTIMIZER_STATE

        super().check()
        if not self.clusters:
            raise RequestError(sharding_messages.SHARDING_CLUSTER_MISSING())
        for name in self.clusters:
            load_cluster(name)
        for text in split_values(self.table):
            parse_table_spec(text)
        for name, value, known in (
            ("optimizer", self.optimizer, list(OPTIMIZER_STATE)),
            ("data type", self.data_type, list(WEIGHT_BYTES)),
        ):
            if value is not None and value not in known:
                raise RequestError(messages.OPTION_VALUE(option=name, given=repr(value), expected=" or ".join(known)))
        _ = self.dense_time_us
