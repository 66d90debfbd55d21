"""Tests can fail: each checks something, and does so whatever the code under test raises or lists."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECKING_CALLS = {"raises", "warns", "raise_for_status", "check_call", "check_output", "fail"}
CHECKING_NAMES = ("check", "assert", "expect")
MAY_BE_EMPTY = {"glob", "rglob", "iterdir", "findall", "finditer", "walk"}
"""What lists what it finds, perhaps nothing."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def list_functions(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


@cache
def read_tests() -> dict[str, ast.Module]:
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in sorted(ROOT.glob("tests/**/*.py"))
    }


@cache
def find_helpers() -> frozenset[str]:
    """Names of functions of the tests that check something, themselves or by another."""
    functions = [one for tree in read_tests().values() for one in list_functions(tree)]
    found: frozenset[str] = frozenset()
    while True:
        names = frozenset(one.name for one in functions if any(find_checks(one, found)))
        if names == found:
            return found
        found = names


def find_checks(node: ast.AST, helpers: Iterable[str]) -> Iterator[ast.AST]:
    """Yield assertions, and calls of what asserts."""
    for child in ast.walk(node):
        if isinstance(child, ast.Assert | ast.Raise):
            yield child
        if isinstance(child, ast.Call):
            name = child.func.attr if isinstance(child.func, ast.Attribute) else getattr(child.func, "id", "")
            told = any(one.arg == "check" and ast.unparse(one.value) == "True" for one in child.keywords)
            if name in CHECKING_CALLS or name.startswith(CHECKING_NAMES) or name in helpers or told:
                yield child


def find_escapes(test: Function) -> Iterator[ast.AST]:
    """Yield the blocks whose checks don't count: what they raise is passed over, or they may run for nothing."""
    for node in ast.walk(test):
        if isinstance(node, ast.With) and any("suppress" in ast.unparse(item.context_expr) for item in node.items):
            yield from node.body
        if isinstance(node, ast.Try) and all(isinstance(one.body[0], ast.Pass | ast.Continue) for one in node.handlers):
            yield from node.body if node.handlers else ()
        if isinstance(node, ast.For):
            called = [one.func for one in ast.walk(node.iter) if isinstance(one, ast.Call)]
            if any(isinstance(one, ast.Attribute) and one.attr in MAY_BE_EMPTY for one in called):
                yield from node.body


def find_weakness(test: Function, helpers: Iterable[str]) -> str:
    """Return why a test can't fail, or nothing."""
    checks = list(find_checks(test, helpers))
    if not checks:
        return "checks nothing"
    passed_over = {id(check) for block in find_escapes(test) for check in find_checks(block, helpers)}
    return "" if any(id(check) not in passed_over for check in checks) else "checks only what may not be reached"


def test_every_test_can_fail():
    weak = [
        f"{path}:{test.lineno} {test.name} {why}"
        for path, tree in read_tests().items()
        for test in list_functions(tree)
        if test.name.startswith("test_") and Path(path).name.startswith("test_")
        if (why := find_weakness(test, find_helpers()))
    ]
    assert weak == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("assert load()", ""),
        ("load()", "checks nothing"),
        ("with pytest.raises(OSError): load()", ""),
        ("with suppress(OSError): assert load()", "checks only what may not be reached"),
        ("try:\n  assert load()\n except OSError:\n  pass", "checks only what may not be reached"),
        ("try:\n  found = load()\n except OSError:\n  return\n assert found", ""),
        ("for path in folder.glob('*'):\n  assert load(path)", "checks only what may not be reached"),
        ("for path in (1, 2):\n  assert load(path)", ""),
        ("for path in folder.glob('*'):\n  load(path)\n assert path", ""),
        ("helper()", ""),
    ],
)
def test_what_cannot_fail_is_found(body, why):
    (test,) = list_functions(ast.parse(f"def test_x():\n {body}\n"))
    assert find_weakness(test, ["helper"]) == why
