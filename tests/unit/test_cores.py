"""Lists of cores, and processes that keep to them."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from grpc_ps.client.shared.cores import Cores, allowed_cores, listed, parse_cores, pin


@pytest.mark.parametrize(
    ("text", "cores"), [("0", (0,)), ("3,1", (3, 1)), ("0-2", (0, 1, 2)), ("1, 0-2", (1, 0, 2)), ("7-7", (7,))]
)
def test_a_list_is_read_in_its_order(text: str, cores: tuple[int, ...]) -> None:
    assert parse_cores(text) == cores
    assert Cores().convert(text, None, None) == cores
    assert parse_cores(listed(cores)) == cores


@pytest.mark.parametrize("text", ["", ",", "0,", "a", "-1", "2-1", "0-", "0:1", "1.5", "1000000"])
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="must be a list of cores: 0, 0,2 or 0-3"):
        Cores().convert(text, None, None)


def test_a_core_that_is_not_there_is_named() -> None:
    there = listed(allowed_cores())
    with pytest.raises(click.UsageError) as caught:
        pin((allowed_cores()[0], 99998, 99999))
    assert caught.value.format_message().endswith(f": no core 99998 here; there are {there}")


PINNED = """
import sys, threading
from pathlib import Path
from grpc_ps.client.shared.cores import allowed_cores, parse_cores, pin
asleep = threading.Event()
threading.Thread(target=asleep.wait, daemon=True).start()
pin(parse_cores(sys.argv[1]))
threading.Thread(target=asleep.wait, daemon=True).start()
threads = [(task / "status").read_text() for task in Path("/proc/self/task").iterdir()]
print(len(threads), {line.split()[1] for text in threads for line in text.splitlines() if "Cpus_allowed_list" in line})
print(allowed_cores())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not let a process choose its cores")
def test_all_threads_keep_to_the_cores_those_that_run_already_too() -> None:
    core = allowed_cores()[-1]
    command = [sys.executable, "-c", PINNED, str(core)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [f"3 {{'{core}'}}", f"({core},)"]
