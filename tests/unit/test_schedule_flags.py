"""--schedule: what the lead takes is taken, and nothing else."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typed_flags import refusal, run, server

from grpc_ps.protos import job_pb2
from grpc_ps.psserver.lead.schedule import schedule

SCHEDULES = [
    "constant", "exponential:100:0.5", "staircase:1:2", "cosine:10", "cosine:10:0", "cosine:10:1", "cosine:10:1e-2",
    "piecewise:10=0.1", "piecewise:1=0.1,2=1e-3,30=5", f"cosine:{(1 << 63) - 1}", "exponential:5:+.5",
]  # fmt: skip
NO_SCHEDULES = [
    "", "const", "constant:1", "constant:", "exponential", "exponential:100", "exponential:0:0.5", "exponential:-1:0.5",
    "exponential:1.5:0.5", "exponential:10:0", "exponential:10:-1", "exponential:10:nan", "exponential:10:inf",
    "exponential:10:x", "exponential:10:0.5:1", "staircase:10:", "cosine", "cosine:", "cosine:0", "cosine:10:2",
    "cosine:10:-0.1", "cosine:10:1:1", f"cosine:{1 << 63}", "piecewise", "piecewise:", "piecewise:10", "piecewise:10=",
    "piecewise:=1", "piecewise:10=0", "piecewise:20=0.1,10=0.1", "piecewise:10=0.1,10=0.2", "piecewise:10=0.1,",
    "piecewise:1=2=3", "linear:3", " constant", "Constant", "cosine:\u0661", "cosine:+1", "cosine:1_0",
    "cosine:" + "9" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("typed", SCHEDULES)
def test_schedules_that_the_lead_takes_are_taken(typed: str) -> None:
    assert schedule(typed, 0.1)(0) > 0
    assert run(server, "--shard=1", "--schedule", typed) == job_pb2.Settings(schedule=typed)


@pytest.mark.parametrize("typed", NO_SCHEDULES)
def test_b08_schedules_that_the_lead_refuses_are_refused(typed: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        schedule(typed, 0.1)
    assert refusal(server, "--shard=1", "--schedule", typed).startswith(f"--schedule {typed}: must be constant, ")


PIECES = (
    "constant",
    "exponential",
    "staircase",
    "cosine",
    "piecewise",
    ":",
    "=",
    ",",
    "0",
    "1",
    "20",
    "0.5",
    "-",
    "e",
    "nan",
)


@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join))
def test_a_flag_and_the_lead_take_the_same_schedules(typed: str) -> None:
    try:
        schedule(typed, 0.1)
        taken = True
    except ValueError:
        taken = False
    try:
        run(server, "--shard=1", f"--schedule={typed}")
    except click.UsageError:
        assert not taken
    else:
        assert taken
