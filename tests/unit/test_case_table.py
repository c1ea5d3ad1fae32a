"""The table of fault cases in tests/README.md is true."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# Kinds A to N; of each the cases that are tested within or between processes.
CASES = (
    *("B01", "B02", "B03", "B05"),
    *("B07", "B08", "B09", "B11", "B13", "B14"),
    *("B16", "B17", "B18"),
    *("B21", "B23", "B24", "B26"),
    *("B27", "B28", "B29", "B30", "B32", "B33", "B36"),
    *("B37", "B39", "B40"),
    *("B42", "B44", "B45", "B48"),
    *("B49", "B50", "B52", "B54"),
    *("B55", "B57", "B58", "B60"),
    *("B62", "B63", "B65", "B66"),
    *("B68", "B70", "B71"),
    *("B72", "B73", "B75", "B76", "B79", "B80"),
    *("B81", "B83", "B85", "B86", "B88", "B89", "B91"),
    "B92",
)
ROW = re.compile(r"^\| (?P<case>B\d\d)? *\| (?P<right>.*?) *\| `(?P<test>[^`]+)` \|$", re.MULTILINE)


def table() -> dict[str, list[str]]:
    """The tests of each case, as the table lists them; a row without a case belongs to the one above."""
    listed: dict[str, list[str]] = {}
    case = ""
    for row in ROW.finditer((TESTS / "README.md").read_text(encoding="utf-8")):
        case = row["case"] or case
        assert row["right"] or not row["case"], f"{case} does not say what is right"
        listed.setdefault(case, []).append(row["test"])
    return listed


@cache
def functions(file: str) -> frozenset[str]:
    """Names of the test functions in a file."""
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_every_case_is_in_the_table_once_and_in_order() -> None:
    assert tuple(table()) == CASES


@pytest.mark.parametrize("case", CASES)
def test_every_test_that_is_named_exists_and_has_the_cases_number(case: str) -> None:
    named = table()[case]
    assert len(named) == len(set(named))
    for test in named:
        file, _, name = test.partition("::")
        assert name in functions(file), f"{test} does not exist"
        assert f"_{case.lower()}_" in name, f"{test} is not named after {case}"


def test_every_test_with_the_number_of_a_case_is_in_the_table() -> None:
    listed = {test for tests in table().values() for test in tests}
    for path in TESTS.rglob("test_*.py"):
        file = path.relative_to(TESTS).as_posix()
        for name in functions(file):
            if any(f"_{case.lower()}_" in name for case in CASES if name.startswith("test_")):
                assert f"{file}::{name}" in listed, f"{file}::{name} is missing in tests/README.md"
