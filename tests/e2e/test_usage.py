"""What is wrong on the command line is said at once: exit 2, the thing named, nothing started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from called_often import MODULES, CalledOften

pytestmark = pytest.mark.e2e

Commands = dict[str, CalledOften]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Importing TensorFlow, which takes seconds, ends a command with exit code 99."""
    folder = tmp_path_factory.mktemp("path")
    (folder / "tensorflow.py").write_text("import os\nos._exit(99)\n")
    with ExitStack() as stack:
        yield {name: stack.enter_context(CalledOften(name, folder)) for name in MODULES}


def refused(commands: Commands, command: str, *arguments: object) -> str:
    """Runs a command that must exit 2 with one line on stderr; returns the line."""
    code, said = commands[command](*arguments)
    assert code == 2, said
    lines = said.splitlines()
    assert len(lines) == 1, said
    assert lines[0].startswith(f"{command}: error: ")
    return lines[0]


@pytest.mark.parametrize(
    ("ps", "names"),
    [
        ("", "--ps"),
        (",", "item 1"),
        ("a:1,", "item 2"),
        (",a:1", "item 1"),
        ("a:1,,b:2", "item 2"),
        ("a", "'a'"),
        ("a:", "'a:'"),
        (":1", "':1'"),
        ("a:0", "'a:0'"),
        ("a:70000", "'a:70000'"),
        ("a:x", "'a:x'"),
        ("http://a:1", "'http://a:1'"),
        ("a:1,a:1", "'a:1'"),
    ],
)
def test_b07_a_bad_list_of_shards(commands: Commands, ps: str, names: str) -> None:
    """Fault B07."""
    assert names in refused(commands, "worker", "--ps", ps, "--model", "linear")
    assert names in refused(commands, "psserver", "--shard", "0", "--ps", ps)
    assert names in refused(commands, "psctl", "watch", "--ps", ps)


@pytest.mark.parametrize(
    ("command", "arguments", "names"),
    [
        ("psserver", ("--shard", "-1", "--port", "0"), ("--shard", "-1")),
        ("psserver", ("--shard", "2", "--shards", "2", "--port", "0", "--lead", "a:1"), ("--shard 2", "0 to 1")),
        ("psserver", ("--shard", "1.5", "--port", "0"), ("--shard", "1.5")),
        ("worker", ("--index", "-1"), ("--index", "-1")),
        ("worker", ("--index", "3", "--workers", "3"), ("--index 3", "0 to 2")),
        ("worker", ("--workers", "0"), ("--workers", "0", "at least 1")),
        ("worker", ("--backup", "-1"), ("--backup", "-1", "0 or more")),
        ("worker", ("--steps", "-5"), ("--steps", "-5", "at least 1")),
        ("worker", ("--batch-size", "0"), ("--batch-size", "0", "at least 1")),
        ("worker", ("--lr", "nan"), ("--lr", "nan", "above 0")),
        ("worker", ("--max-staleness", "-2"), ("--max-staleness", "-2", "none")),
        ("worker", ("--until", "accuracy=x"), ("--until", "accuracy=x", "METRIC>=NUMBER")),
        ("worker", ("--schedule", "cosine:0"), ("--schedule", "cosine:0", "cosine:STEPS")),
        ("psserver", ("--shard", "0", "--port", "0", "--clip-norm", "1", "--clip-value", "1"), ("--clip-norm", "one")),
        ("psctl", ("set", "--ps", "a:1", "--workers", "0"), ("--workers", "0", "at least 1")),
        ("psctl", ("set", "--ps", "a:1"), ("nothing to change", "--mode")),
        ("psctl", ("watch", "--ps", "a:1", "--interval", "0"), ("--interval", "0", "above 0")),
        ("psctl", ("placement", "--model", "mnist"), ("--shards",)),
        ("psctl", ("launch", "--model", "linear", "--mode", "sync", "--max-staleness", "2"), ("--max-staleness 2",)),
    ],
)
def test_b08_a_number_out_of_range(
    commands: Commands, command: str, arguments: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """Fault B08: the flag, the value and the range."""
    base = ("--ps", "127.0.0.1:1", "--model", "linear") if command == "worker" else ()
    line = refused(commands, command, *base, *arguments)
    assert all(name in line for name in names), line


@pytest.mark.parametrize(
    ("command", "arguments", "names"),
    [
        ("psserver", ("-shard=1", "--port", "0"), ("-shard=1", "--shard")),
        ("psserver", ("--shrad", "1", "--port", "0"), ("--shrad", "--shard")),
        ("psserver", ("--port", "0"), ("--shard",)),
        ("worker", ("--ps", "a:1", "--model", "mnits"), ("mnits", "mnist", "linear")),
        ("psctl", ("lunch",), ("lunch", "launch")),
        ("psctl", ("evaluate", "--ps", "a:1", "--model", "mnits"), ("mnits", "mnist", "linear")),
        ("psctl", ("set", "--ps", "a:1", "--maxstaleness", "2"), ("--maxstaleness", "--max-staleness")),
    ],
)
def test_b09_a_mistyped_flag_or_name(
    commands: Commands, command: str, arguments: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """Fault B09."""
    line = refused(commands, command, *arguments)
    assert all(name in line for name in names), line
