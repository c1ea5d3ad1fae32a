"""The README's table of what TensorFlow 1.x has names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (?P<there>.+?) \| (?P<here>.+) \| `(?P<test>[^`|]+::[^`|]+)` \|$", re.MULTILINE)


def section() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.partition("\n## From TensorFlow 1.x\n")[2].partition("\n## ")[0]


def test_every_row_has_a_test() -> None:
    rows = [line for line in section().splitlines() if line.startswith("| ")]
    assert len(ROW.findall(section())) == len(rows) - 2 > 20  # Less the table's head.


@pytest.mark.parametrize("test", [row["test"] for row in ROW.finditer(section())])
def test_the_test_exists(test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
