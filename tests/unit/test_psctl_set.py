"""psctl set: what it sends, what it shows, and what it refuses before and after asking the lead."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from fake_control import FakeControl, job, status

from grpc_ps.client.client import PSClient
from grpc_ps.client.commands.group import run
from grpc_ps.client.shared.errors import Mismatch, NotOpen, UsageError
from grpc_ps.protos import control_pb2 as wire


def answer(**fields: Any) -> wire.SetResponse:
    settings = fields.pop("settings", {})
    whole = {"global_step": 31, "position": 58, "learning_rate_factor": 1.0, "settings": job(**settings).settings}
    return wire.SetResponse(**{**whole, **fields})


def test_what_has_changed_is_shown_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl() as lead:
        lead.answer = answer(settings={"mode": "sync", "workers": 2}, learning_rate_factor=0.5, paused=True)
        flags = "--mode sync --workers 2 --backup 0 --learning-rate-factor 0.5 --pause"
        assert run(["set", "--ps", lead.address, *flags.split()]) == 0
    assert lead.requests == [
        wire.SetRequest(mode="sync", workers=2, backup=0, learning_rate_factor=0.5, paused=True),
    ]
    assert capsys.readouterr().out.splitlines() == [
        "at global step 31, behind position 58 of the lead's log:",
        "  mode: async -> sync",
        "  workers: 1 -> 2",
        "  learning_rate_factor: 1.0 -> 0.5",
        "  paused: no -> yes",
        "  backup: is 0 already",
    ]


@pytest.mark.parametrize(
    ("flags", "request_"),
    [
        (["--max-staleness", "none"], wire.SetRequest(max_staleness=-1)),
        (["--max-staleness", "0"], wire.SetRequest(max_staleness=0)),
        (["--min-workers", "2"], wire.SetRequest(min_workers=2)),
        (["--mode", "async"], wire.SetRequest(mode="async")),
        (["--backup", "3"], wire.SetRequest(backup=3)),
        (["--resume"], wire.SetRequest(paused=False)),
        (["--pause"], wire.SetRequest(paused=True)),
    ],
)
def test_only_what_is_given_is_sent(flags: list[str], request_: wire.SetRequest) -> None:
    with FakeControl() as lead:
        lead.answer = answer()
        assert run(["set", "--ps", lead.address, *flags]) == 0
    (sent,) = lead.requests
    assert sent == request_
    assert [field.name for field, _ in sent.ListFields()] == [field.name for field, _ in request_.ListFields()]


def test_a_bound_is_shown_as_it_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl() as lead:
        lead.answer = answer(settings={"max_staleness": 2})
        assert run(["set", "--ps", lead.address, "--max-staleness", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["  max_staleness: none -> 2"]


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl() as lead:
        lead.answer = answer(settings={"backup": 1}, paused=True)
        assert run(["set", "--ps", lead.address, "--backup", "1", "--pause", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "global_step": 31,
        "position": 58,
        "changed": {"backup": {"old": 0, "new": 1}, "paused": {"old": False, "new": True}},
    }


@pytest.mark.parametrize("refusal", [Mismatch("workers 3 must be at most 2, the live workers"), NotOpen("no job runs")])
def test_what_the_lead_refuses_is_passed_on(refusal: Mismatch | NotOpen) -> None:
    with FakeControl() as lead:
        lead.answer = refusal
        with pytest.raises(type(refusal), match=f"^{refusal}$") as caught:
            run(["set", "--ps", lead.address, "--workers", "3"])
    assert caught.value.exit_code == (2 if isinstance(refusal, Mismatch) else 4)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ([], "nothing to change: give --mode, --workers, --backup"),
        (["--workers", "0"], "--workers 0: must be at least 1"),
        (["--backup", "-1"], "--backup -1: must be 0 or more"),
        (["--min-workers", "0"], "--min-workers 0: must be at least 1"),
        (["--workers", "2", "--min-workers", "3"], "--min-workers 3: must be 1 to 2, the value of --workers"),
        (["--max-staleness", "-1"], "--max-staleness -1: must be a whole number, 0 to 2147483647, or none"),
        (["--pause", "--resume"], "--pause and --resume: give one of them, not both"),
        (["--resume", "--pause", "--backup", "1"], "--pause and --resume: give one of them, not both"),
        (["--max-staleness", "-2"], "--max-staleness -2: must be a whole number, 0 to 2147483647, or none"),
        (["--max-staleness", "nope"], "--max-staleness nope: must be a whole number, 0 to 2147483647, or none"),
        (["--mode", "sync", "--max-staleness", "2"], "--max-staleness 2: only with --mode async"),
        (["--learning-rate-factor", "0"], "--learning-rate-factor 0: must be a finite number above 0"),
        (["--learning-rate-factor", "nan"], "--learning-rate-factor nan: must be a finite number above 0"),
        (["--mode", "asnyc"], "--mode asnyc: must be one of async, sync (did you mean async?)"),
        (["--pasue"], "unknown option --pasue (did you mean --pause?)"),
        (
            ["--learning-rate", "0.1"],
            "unknown option --learning-rate (did you mean --learning-rate-factor? That is a factor: 0.1 there is 0.1"
            " times the schedule's rate)",
        ),
    ],
)
def test_b08_b09_bad_flags_are_refused_before_a_connection_is_made(flags: list[str], text: str) -> None:
    with FakeControl() as lead:
        with pytest.raises(click.UsageError) as refused:
            run(["set", "--ps", lead.address, *flags])
        assert refused.value.format_message().startswith(text)
        assert lead.requests == []


def test_the_library_refuses_what_no_message_can_carry() -> None:
    with FakeControl() as lead, PSClient(lead.address) as client:
        with pytest.raises(UsageError, match=r"^workers -1: no possible value$"):
            client.set(workers=-1)
        with pytest.raises(UsageError, match=r"^mode 3: no possible value$"):
            client.set(mode=3)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="nothing to change"):
            client.set()
        assert lead.requests == []
        lead.answer = answer(settings={"backup": 2})
        changed = client.set(backup=2)
    assert (changed.global_step, changed.position, changed.settings["backup"], changed.paused) == (31, 58, 2, False)


def test_the_state_before_is_that_of_the_lead() -> None:
    """What others changed before is not shown as changed now."""
    with FakeControl(status(job=job(mode="sync"), paused=True, learning_rate_factor=2.0)) as lead:
        lead.answer = answer(settings={"mode": "sync"}, paused=False, learning_rate_factor=2.0)
        assert run(["set", "--ps", lead.address, "--resume"]) == 0
