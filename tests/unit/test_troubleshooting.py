"""Every line that the troubleshooting page quotes is one that the programs can say."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "TROUBLESHOOTING.md").read_text(encoding="utf-8")
FOLDERS = ("client", "models", "psserver", "worker")
# What stands for a value in a text of the sources; `...` does in a quotation.
HOLE = "\0"


def quoted() -> list[str]:
    """What stands in backticks in the first column of the page's tables."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| you see", "| ---"))]
    return [text for row in rows for text in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def text_of(node: ast.AST) -> str | None:
    """A text of the sources, with holes where values come in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
    return None


def event_of(node: ast.Call) -> str | None:
    """An event of the log, as a line has it."""
    if not (isinstance(node.func, ast.Name) and node.func.id == "event" and len(node.args) > 1):
        return None
    name = text_of(node.args[1])
    return " ".join([str(name), *(f"{word.arg}={text_of(word.value) or HOLE}" for word in node.keywords)])


@cache
def texts() -> tuple[str, ...]:
    """All texts of the programs, and the names of the metrics."""
    found: set[str] = set()
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = event_of(node) if isinstance(node, ast.Call) else text_of(node)
            if text:
                found.add(text)
    return tuple(found)


def said(quotation: str) -> bool:
    """Whether a text has all fixed parts of the quotation in order, or one has the first and another one the rest."""
    parts = [part.strip() for part in quotation.replace('"', "").split("...") if part.strip()]
    return any(has(parts[:middle]) and has(parts[middle:]) for middle in range(1, len(parts) + 1))


def has(parts: list[str]) -> bool:
    """Whether one text of the programs has all of those, one after the other."""
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    return any(pattern.search(text) for text in texts())


@pytest.mark.parametrize("quotation", quoted())
def test_what_is_quoted_is_said(quotation: str) -> None:
    assert said(quotation), f"no text of the programs has: {quotation}"


def test_a_line_that_nobody_says_is_found_out() -> None:
    assert said("rollback from_step=... to_step=...")
    for wrong in ("rollback to_step=... from_step=...", "roll back", "cannot reach ... (waits ... s)"):
        assert not said(wrong)


def test_the_page_is_linked_and_its_links_lead_somewhere() -> None:
    assert "(TROUBLESHOOTING.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    anchors = {head.lower().replace(" ", "-") for head in heads}
    listed = re.findall(r"\(#([\w-]+)\)", PAGE.split("## Start")[0])
    assert listed == [head.lower().replace(" ", "-") for head in heads]
    assert set(re.findall(r"\(#([\w-]+)\)", PAGE)) == anchors | set(listed)
