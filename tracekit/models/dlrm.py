"""Read the configuration of a DLRM: its embedding tables, its MLPs and how their results interact.

    {"model_type": "dlrm",
     "tables": [{"rows": 1000000, "width": 128, "pooling": 20, "count": 26}],
     "dense_features": 13, "bottom_mlp": [512, 256, 128], "interaction": "dot", "top_mlp": [1024, 1024, 512, 256, 1]}

As in facebookresearch/dlrm and in TorchRec, whose names of a table's sizes count too.

A user writes tables as ``26*1000000x128:20:1.05``: 26 tables of a million rows, 128 values each. A sample looks up 20
rows of each, which are summed, and draws them by Zipf's law with an exponent of 1.05.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from tracekit.bounds import (
    MAX_COUNT,
    MAX_MODEL_CONFIG_BYTES,
    MAX_POOLING,
    MAX_TABLE_ROWS,
    MAX_TABLE_WIDTH,
    MAX_TABLES,
    MAX_ZIPF_ALPHA,
)
from tracekit.errors import ModelConfigError, RequestError
from tracekit.messages import models as messages
from tracekit.numbers import NUMBER_PATTERN

ROW_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
DEFAULT_POOLING = 1.0
_TABLE = re.compile(
    r"(?:(?P<count>[0-9]{1,7})\s*\*\s*)?"
    rf"(?P<rows>{NUMBER_PATTERN})\s*(?P<factor>[kKmMgG]?)\s*[x×]\s*(?P<width>[0-9]{{1,7}})"
    rf"(?:\s*:\s*(?P<pooling>{NUMBER_PATTERN})(?:\s*:\s*(?P<alpha>{NUMBER_PATTERN}))?)?"
)
MODEL_TYPE = "dlrm"
INTERACTIONS = ("dot", "dcn", "cat")
EMBEDDING_BAG, FBGEMM = "embedding_bag", "fbgemm"
TABLE_OPTIMIZERS = {
    EMBEDDING_BAG: ("sgd",),
    FBGEMM: ("sgd", "rowwise_adagrad", "adagrad", "adam", "partial_rowwise_adam"),
}
"""Libraries that look up rows, and what they update tables by."""
BOTTOM_MLP, TOP_MLP = (512, 256), (1024, 1024, 512, 256, 1)
"""Widths where a configuration has none, those of MLPerf's DLRM; the bottom one's last is that of the tables."""
MAX_LAYERS = 64
"""Layers of an MLP, or cross layers."""
DEFAULT_BATCH = 2048
TABLE_KEYS = {
    "count": "count",
    "rows": "rows",
    "num_embeddings": "rows",
    "width": "width",
    "embedding_dim": "width",
    "pooling": "pooling",
    "pooling_factor": "pooling",
    "alpha": "alpha",
}
"""Keys of a table, and the fields of its specification."""
IGNORED_TABLE_KEYS = ("name", "feature_names")
KEYS = (
    "model_type", "name", "tables", "dense_features", "bottom_mlp", "top_mlp", "interaction", "cross_layers",
    "cross_rank", "batch_size", "lookup", "sparse_gradients", "table_optimizer",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Embedding tables of one kind.

    Attributes:
        count: Tables of that kind.
        rows: Of each table.
        width: Values of a row.
        pooling: Mean look-ups of a sample, whose rows are summed.
        alpha: Exponent of Zipf's law by which rows are looked up; None for that of the request.
    """

    count: int
    rows: int
    width: int
    pooling: float = DEFAULT_POOLING
    alpha: float | None = None

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("count", self.count, 1, MAX_TABLES),
            ("rows", self.rows, 1, MAX_TABLE_ROWS),
            ("width", self.width, 1, MAX_TABLE_WIDTH),
            ("pooling", self.pooling, 0, MAX_POOLING),
            ("alpha", self.alpha or 0.0, 0, MAX_ZIPF_ALPHA),
        ):
            if not least <= value <= most:
                raise RequestError(messages.TABLE_BEYOND_BOUNDS(name=name, value=value, least=least, most=most))


def parse_table_spec(text: str) -> TableSpec:
    """Parse ``[COUNT*]ROWSxWIDTH[:POOLING[:ALPHA]]``.

    ``text`` is such as ``40Mx128`` or ``26*1000000x128:20:1.05``; rows also in k, M or G.

    Raises:
        RequestError: It is no such text, or a number is impossible.
    """
    found = _TABLE.fullmatch(text.strip())
    rows = Decimal(found["rows"]) * ROW_FACTORS[found["factor"].lower()] if found else Decimal(0)
    if found is None or rows != int(rows):
        raise RequestError(messages.TABLE_MALFORMED(table=text))
    return TableSpec(
        count=int(found["count"] or 1),
        rows=int(rows),
        width=int(found["width"]),
        pooling=float(found["pooling"] or DEFAULT_POOLING),
        alpha=float(found["alpha"]) if found["alpha"] else None,
    )


@dataclass(frozen=True, slots=True)
class DlrmConfig:
    """A DLRM.

    Attributes:
        name: File that it was read from.
        dense_features: Width of the dense input; 0 without one.
        bottom_mlp: Widths of the layers above it; empty for the usual ones.
        top_mlp: Widths of the last layers.
        interaction: How results interact: "dot", "dcn" (low-rank cross layers) or "cat".
        cross_rank: Their rank.
        batch_size: Samples, where none are asked for.
        lookup: The library that looks up rows: "embedding_bag" (PyTorch) or "fbgemm".
        has_sparse_gradients: Whether a table's gradient has only the rows that were looked up.
        table_optimizer: What then updates the tables, in the backward pass.
    """

    name: str
    tables: tuple[TableSpec, ...]
    dense_features: int = 13
    bottom_mlp: tuple[int, ...] = ()
    top_mlp: tuple[int, ...] = TOP_MLP
    interaction: str = INTERACTIONS[0]
    cross_layers: int = 3
    cross_rank: int = 512
    batch_size: int = DEFAULT_BATCH
    lookup: str = EMBEDDING_BAG
    has_sparse_gradients: bool = True
    table_optimizer: str = "sgd"

    def __post_init__(self) -> None:
        count = sum(table.count for table in self.tables)
        if not count:
            raise ModelConfigError(messages.DLRM_WITHOUT_TABLES(path=self.name))
        if count > MAX_TABLES:
            raise ModelConfigError(messages.DLRM_TABLES_TOO_MANY(path=self.name, tables=count, most=MAX_TABLES))
        widths = dict.fromkeys(table.width for table in self.tables)
        if self.dense_features:
            widths[self.bottom_widths[-1]] = None
        if self.interaction == "dot" and len(widths) > 1:
            raise ModelConfigError(messages.DLRM_WIDTHS_DIFFER(path=self.name, widths=list(widths)))
        known = TABLE_OPTIMIZERS[self.lookup]
        if self.table_optimizer not in known:
            raise ModelConfigError(
                messages.DLRM_TABLE_OPTIMIZER(
                    path=self.name, lookup=self.lookup, optimizer=self.table_optimizer, known=list(known)
                )
            )

    @property
    def bottom_widths(self) -> tuple[int, ...]:
        """Widths of the bottom MLP's layers; none without dense features."""
        if not self.dense_features:
            return ()
        return self.bottom_mlp or (*BOTTOM_MLP, self.tables[0].width)


@dataclass(frozen=True, slots=True)
class DlrmEdits:
    """What changes in a DLRM's configuration; what is empty doesn't."""

    tables: tuple[TableSpec, ...] = ()
    bottom_mlp: tuple[int, ...] = ()
    top_mlp: tuple[int, ...] = ()

    def apply(self, config: DlrmConfig) -> DlrmConfig:
        """Return the configuration with the changes.

        Raises:
            ModelConfigError: The widths don't fit.
        """
        return replace(
            config,
            tables=self.tables or config.tables,
            bottom_mlp=self.bottom_mlp or config.bottom_mlp,
            top_mlp=self.top_mlp or config.top_mlp,
        )


def parse_mlp(text: str) -> tuple[int, ...]:
    """Parse the widths of an MLP's layers: ``512,256,128``; also with hyphens, as facebookresearch/dlrm takes them.

    Raises:
        RequestError: They are none.
    """
    parts = [part.strip() for part in text.replace("-", ",").split(",")]
    is_number = all(part.isascii() and part.isdigit() and len(part) < len(str(MAX_COUNT)) for part in parts)
    widths = tuple(map(int, parts)) if is_number else ()
    if not widths or len(widths) > MAX_LAYERS or not all(1 <= width <= MAX_TABLE_WIDTH for width in widths):
        raise RequestError(messages.MLP_MALFORMED(widths=text))
    return widths


def read_dlrm_config(path: str | Path) -> DlrmConfig | None:
    """Read the configuration of a DLRM; ``None`` if a file has none.

    Raises:
        ModelConfigError: It is one of a DLRM with impossible values.
    """
    from predictors.given_files import read_regular_file

    try:
        text = read_regular_file(Path(path), MAX_MODEL_CONFIG_BYTES + 1)
    except (OSError, ValueError):
        return None
    if len(text) > MAX_MODEL_CONFIG_BYTES:
        return None
    return parse_dlrm_config(text, str(path))


def parse_dlrm_config(text: bytes, name: str) -> DlrmConfig | None:
    """Parse the configuration of a DLRM; ``None`` if a text is none.

    Raises:
        ModelConfigError: It is one of a DLRM with impossible values.
    """
    import msgspec  # here, as `import tracekit` does without it where it only records

    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(given, dict) or given.get("model_type") != MODEL_TYPE:
        return None
    return _Parser(name, given).parse()


class _Parser:
    """Parses the values of a configuration."""

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        self._name, self._given = name, given

    def parse(self) -> DlrmConfig:
        self._check_keys(self._given, KEYS, "a DLRM's configuration")
        lookup = self._get_choice("lookup", tuple(TABLE_OPTIMIZERS), EMBEDDING_BAG)
        is_sparse = self._get_value("sparse_gradients", True, "true or false", lambda value: isinstance(value, bool))
        return DlrmConfig(
            name=self._name,
            tables=self._parse_tables(),
            dense_features=self._get_size("dense_features", 13, least=0),
            bottom_mlp=self._get_widths("bottom_mlp", ()),
            top_mlp=self._get_widths("top_mlp", TOP_MLP),
            interaction=self._get_choice("interaction", INTERACTIONS, INTERACTIONS[0]),
            cross_layers=self._get_size("cross_layers", 3, most=MAX_LAYERS),
            cross_rank=self._get_size("cross_rank", 512),
            batch_size=self._get_size("batch_size", DEFAULT_BATCH, most=MAX_COUNT),
            lookup=lookup,
            has_sparse_gradients=lookup == FBGEMM or bool(is_sparse),
            table_optimizer=self._get_value("table_optimizer", "sgd", "a name", lambda value: isinstance(value, str)),
        )

    def _check_keys(self, given: Mapping[str, Any], known: Sequence[str], part: str) -> None:
        for key in given:
            if key not in known:
                raise ModelConfigError(
                    messages.DLRM_KEY_UNKNOWN(path=self._name, key=key, part=part, known=list(known))
                )

    def _parse_tables(self) -> tuple[TableSpec, ...]:
        given = self._get_value("tables", [], "a list of tables", lambda value: isinstance(value, list))
        return tuple(self._parse_table(one, f"tables[{place}]") for place, one in enumerate(given))

    def _parse_table(self, given: Any, place: str) -> TableSpec:
        try:
            if isinstance(given, str):
                return parse_table_spec(given)
            if not isinstance(given, dict):
                raise self._refuse(place, given, "rows and width, or text such as 26*1000000x128:20")
            self._check_keys(given, (*TABLE_KEYS, *IGNORED_TABLE_KEYS), "a table")
            values = {TABLE_KEYS[key]: value for key, value in given.items() if key in TABLE_KEYS}
            for name in ("rows", "width"):
                if name not in values:
                    raise self._refuse(f"{place}.{name}", None, "a whole number")
            for name, value in values.items():
                self._check_number(f"{place}.{name}", value, whole=name not in ("pooling", "alpha"))
            return TableSpec(**({"count": 1} | values))
        except RequestError as error:
            raise ModelConfigError(messages.DLRM_TABLE(path=self._name, place=place, reason=error.message)) from error

    def _check_number(self, place: str, value: Any, *, whole: bool) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or (whole and not isinstance(value, int)):
            raise self._refuse(place, value, "a whole number" if whole else "a number")

    def _get_size(self, key: str, default: int, least: int = 1, most: int = MAX_TABLE_WIDTH) -> int:
        expected = f"a whole number from {least} to {most}"
        return int(self._get_value(key, default, expected, lambda value: _is_size(value, least, most)))

    def _get_widths(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        expected = f"the widths of up to {MAX_LAYERS} layers, such as [512, 256, 128]"
        return tuple(self._get_value(key, list(default), expected, _are_widths)) or default

    def _get_choice(self, key: str, known: Sequence[str], default: str) -> str:
        return str(self._get_value(key, default, " or ".join(known), lambda value: value in known))

    def _get_value(self, key: str, default: Any, expected: str, is_valid: Callable[[Any], bool]) -> Any:
        value = self._given.get(key, default)
        if key in self._given and not is_valid(value):
            raise self._refuse(key, value, expected)
        return value

    def _refuse(self, key: str, value: object, expected: str) -> ModelConfigError:
        import msgspec

        return ModelConfigError(
            messages.DLRM_VALUE(path=self._name, key=key, value=msgspec.json.encode(value).decode(), expected=expected)
        )


def _is_size(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _are_widths(value: object) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(value) <= MAX_LAYERS
        and all(_is_size(width, 1, MAX_TABLE_WIDTH) for width in value)
    )
