"""Make faults: each kind of small change to a program's source, at each place where it fits."""

import ast
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
OPPOSITES = {
    name: other
    for pair in (
        ("min", "max"),
        ("minimum", "maximum"),
        ("min_horizontal", "max_horizontal"),
        ("cum_min", "cum_max"),
        ("first", "last"),
        ("head", "tail"),
        ("any", "all"),
        ("any_horizontal", "all_horizontal"),
        ("argmin", "argmax"),
        ("floor", "ceil"),
        ("startswith", "endswith"),
        ("starts_with", "ends_with"),
    )
    for name, other in (pair, pair[::-1])
} | {"sum": "max", "sorted": "list", "mean": "max", "median": "max"}
DROPPABLE = frozenset(
    ("fill_null", "fill_nan", "drop_nulls", "sort", "filter", "unique", "clip", "abs", "round", "strip", "rstrip")
) | {"lstrip", "lower", "cast", "shift", "over", "alias"}
"""Methods that can be left out of a chain and leave something of the same kind."""
IN_ANY_ORDER = frozenset(("min", "max", "minimum", "maximum", "min_horizontal", "max_horizontal")) | frozenset(
    ("any_horizontal", "all_horizontal", "and_", "or_")
)
"""Functions that take their arguments in any order."""
CONDITIONS_IN_ANY_ORDER = ("filter", "where")
"""Methods of tables and queries that do."""


@dataclass(frozen=True)
class Fault:
    """A change to one place of one file.

    Attributes:
        path: Of the file, from the root of the repository.
        line: First line of what is changed, from 1.
        kind: Of change.
        before: The place as it is.
        after: What it becomes.
        source: The whole file with the fault.
    """

    path: str
    line: int
    kind: str
    before: str
    after: str
    source: str


@dataclass(frozen=True)
class Change:
    """A node to replace, before the text is made."""

    node: ast.expr | ast.stmt
    kind: str
    after: str


def find_faults(path: str, source: str) -> Iterator[Fault]:
    """Yield every fault that can be put into a file; see ``compiles``."""
    tree = ast.parse(source)
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    whole = source.encode()
    for change in _find_changes(tree):
        node = change.node
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before = whole[begin:end].decode()
        mutated = (whole[:begin] + change.after.encode() + whole[end:]).decode()
        yield Fault(path, node.lineno, change.kind, before, change.after, mutated)


def compiles(fault: Fault) -> bool:
    """Tell whether the file with the fault is a program: some statements may not be left out."""
    try:
        compile(fault.source, fault.path, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _find_changes(tree: ast.Module) -> Iterator[Change]:
    columns = sorted({name for node in ast.walk(tree) for name in _name_columns(node)})
    attributes: defaultdict[str, set[str]] = defaultdict(set)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in ("pl", "np"):
            attributes[node.value.id].add(node.attr)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in _walk_code(tree):
        for change in CHANGES:
            yield from change(node)
        yield from _change_columns(node, columns)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and id(node) not in called:
            yield from _change_attribute(node, sorted(attributes[node.value.id] - {node.attr}))


def _walk_code(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that do something: no docstrings, annotations, decorators, imports, assertions or error texts."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert | ast.Raise | ast.JoinedStr):
            if isinstance(node, ast.Raise):
                yield node
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        pending.extend(_list_children(node))


def _list_children(node: ast.AST) -> Iterable[ast.AST]:
    left_out = ("annotation", "returns", "decorator_list", "bases", "type_params")
    for field, value in ast.iter_fields(node):
        if field in left_out:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.arguments):
                yield from child.defaults
                yield from (default for default in child.kw_defaults if default is not None)
            elif isinstance(child, ast.AST):
                yield child


def _write(node: ast.AST) -> str:
    return f"({ast.unparse(node)})"


def _change_comparison(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = COMPARISONS[type(node.ops[0])]()
        yield Change(node, "comparison", _write(ast.Compare(node.left, [other], node.comparators)))


def _change_arithmetic(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        if isinstance(node.op, ast.BitOr) and any(_is_type(side) for side in (node.left, node.right)):
            return
        yield Change(node, "arithmetic", _write(ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield Change(node, "arithmetic", _write(node.operand))


def _is_type(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).rpartition(".")[2][:1].isupper()


def _change_opposite(node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Name) and node.func.id in OPPOSITES:
        yield Change(node.func, "opposite", OPPOSITES[node.func.id])
    if isinstance(node.func, ast.Attribute) and node.func.attr in OPPOSITES:
        other = ast.Attribute(node.func.value, OPPOSITES[node.func.attr], ast.Load())
        yield Change(node.func, "opposite", ast.unparse(other))


def _change_logic(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield Change(node, "and/or", _write(ast.BoolOp(other, node.values)))
        for i in range(len(node.values)):
            kept = node.values[:i] + node.values[i + 1 :]
            yield Change(node, "dropped condition", _write(ast.BoolOp(node.op, kept) if len(kept) > 1 else kept[0]))


def _change_condition(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.If | ast.While):
        yield Change(node.test, "dropped condition", "False")
    if isinstance(node, ast.If):
        yield Change(node.test, "dropped condition", "True")
    if isinstance(node, ast.IfExp):
        yield Change(node, "dropped condition", _write(node.body))
        yield Change(node, "dropped condition", _write(node.orelse))
    if isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield Change(test, "dropped condition", "True")


def _change_constant(node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield Change(node, "constant", str(not node.value))
    elif isinstance(node.value, int):
        yield Change(node, "constant", str(node.value + 1))
    elif isinstance(node.value, float):
        yield Change(node, "constant", repr(node.value * 1.1 if node.value else 0.1))


def _change_call(node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Attribute) and node.func.attr in DROPPABLE and ast.unparse(node.func.value) != "np":
        yield Change(node, "dropped call", _write(node.func.value))
    plain = [i for i, argument in enumerate(node.args) if not isinstance(argument, ast.Starred)]
    if len(plain) > 1 and ast.dump(node.args[plain[0]]) != ast.dump(node.args[plain[1]]) and not _is_order_free(node):
        swapped = list(node.args)
        swapped[plain[0]], swapped[plain[1]] = swapped[plain[1]], swapped[plain[0]]
        yield Change(node, "swapped arguments", ast.unparse(ast.Call(node.func, swapped, node.keywords)))
    for i, keyword in enumerate(node.keywords):
        if keyword.arg == "strict" and ast.unparse(keyword.value) == "False":
            continue  # as is the default
        kept = node.keywords[:i] + node.keywords[i + 1 :]
        yield Change(node, "dropped argument", ast.unparse(ast.Call(node.func, node.args, kept)))


def _is_order_free(node: ast.Call) -> bool:
    """Return whether the order of a call's arguments changes nothing."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in CONDITIONS_IN_ANY_ORDER:
        return ast.unparse(node.func.value) != "np"
    name = ast.unparse(node.func).rpartition(".")[2]
    return name in IN_ANY_ORDER and not node.keywords


def _change_statement(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Expr | ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete):
        yield Change(node, "dropped statement", "pass")


def _name_columns(node: ast.AST) -> Iterator[str]:
    for text in _list_column_texts(node):
        yield str(text.value)


def _list_column_texts(node: ast.AST) -> Iterator[ast.Constant]:
    texts: list[ast.expr] = []
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "pl.col":
        texts = node.args
    elif isinstance(node, ast.Subscript):
        texts = [node.slice]
    yield from (text for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str))


def _change_columns(node: ast.AST, columns: list[str]) -> Iterator[Change]:
    for text in _list_column_texts(node):
        others = [name for name in columns if name != text.value]
        if others:
            yield Change(text, "name", repr(random.Random(f"{text.value!r}{text.lineno}").choice(others)))


def _change_attribute(node: ast.Attribute, others: list[str]) -> Iterator[Change]:
    if others and isinstance(node.ctx, ast.Load):
        other = random.Random(f"{node.attr}{node.lineno}").choice(others)
        yield Change(node, "name", f"{ast.unparse(node.value)}.{other}")


CHANGES: tuple[Callable[[ast.AST], Iterator[Change]], ...] = (
    _change_comparison,
    _change_arithmetic,
    _change_opposite,
    _change_logic,
    _change_condition,
    _change_constant,
    _change_call,
    _change_statement,
)
