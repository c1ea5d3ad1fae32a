"""What `--fault` says, and when a fault strikes."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_ps.client.shared.fault_flags import made_calls, served_calls
from grpc_ps.client.shared.faults import (
    KINDS,
    SHARD_POINTS,
    Fault,
    FaultPlan,
    Faults,
    parse_fault,
    without_kills,
)
from grpc_ps.client.shared.logs import ROOT

CALLS = {"Join": False, "Heartbeat": False, "PushPull": True}


def parse(text: str) -> Fault:
    return parse_fault(text, CALLS, SHARD_POINTS)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("delay:Join=1.5", Fault(kind="delay", where="Join", seconds=1.5)),
        (" delay:PushPull=1e-3@0.25 ", Fault(kind="delay", where="PushPull", seconds=0.001, probability=0.25)),
        ("drop:Join", Fault(kind="drop", where="Join")),
        ("drop-answer:Heartbeat@1", Fault(kind="drop-answer", where="Heartbeat")),
        ("duplicate:Join@.5", Fault(kind="duplicate", where="Join", probability=0.5)),
        ("cut:PushPull", Fault(kind="cut", where="PushPull", probability=0.01)),
        ("kill@part.write:3", Fault(kind="kill", where="part.write", passing=3)),
        ("kill@applied", Fault(kind="kill", where="applied")),
    ],
)
def test_forms(text: str, fault: Fault) -> None:
    assert parse(text) == fault


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must be delay:CALL=SECONDS[@P], drop:CALL[@P]"),
        ("Join", "must be delay:CALL=SECONDS[@P], drop:CALL[@P]"),
        ("dely:Join=1", "unknown kind dely (did you mean delay?); the forms are delay:"),
        ("delay:Jion=1", "unknown call Jion (did you mean Join?)"),
        ("drop:Everything", "unknown call Everything; known are Join, Heartbeat, PushPull"),
        ("delay:Join", "how long? write delay:Join=SECONDS"),
        ("drop:Join=1", "only delay has seconds; write drop:Join[@P]"),
        ("delay:Join=", "SECONDS must be a number above 0 and at most 3600, not ''"),
        ("delay:Join=nan", "SECONDS must be a number above 0 and at most 3600, not 'nan'"),
        ("delay:Join=3601", "SECONDS must be a number above 0 and at most 3600, not '3601'"),
        ("drop:Join@0", "the probability must be a number above 0 and at most 1, not '0'"),
        ("drop:Join@1.01", "the probability must be a number above 0 and at most 1, not '1.01'"),
        ("drop:Join@", "the probability must be a number above 0 and at most 1, not ''"),
        ("cut:Join", "Join is no stream that could be cut; drop and drop-answer are for calls"),
        ("duplicate:PushPull", "PushPull is a stream; cut it, and what was under way is sent again"),
        ("kill:applied", "must be kill@POINT[:N]; points are pushed.header, "),
        ("kill@appleid", "unknown point appleid (did you mean applied?)"),
        ("kill@applied:0", "N counts from 1"),
    ],
)
def test_b09_what_is_no_fault_is_refused_with_what_would_do(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"^.") as caught:
        parse(text)
    assert str(caught.value).startswith(says)


chances = st.floats(0, 1, exclude_min=True)
names = st.sampled_from([*CALLS])
seconds = st.floats(0, 3600, exclude_min=True)
faults_at_calls = st.one_of(
    st.builds(Fault, kind=st.just("delay"), where=names, seconds=seconds, probability=chances),
    st.builds(Fault, kind=st.sampled_from(["drop", "drop-answer"]), where=names, probability=chances),
    st.builds(Fault, kind=st.just("duplicate"), where=st.just("Join"), probability=chances),
)
kills = st.builds(Fault, kind=st.just("kill"), where=st.sampled_from(SHARD_POINTS), passing=st.integers(1, 10**18 - 1))


@given(st.one_of(faults_at_calls, kills))
def test_a_fault_reads_its_own_text(fault: Fault) -> None:
    assert parse(str(fault)) == fault


@given(st.text(alphabet="delaydropcutkill:@=.0123456789Join-", max_size=40))
def test_any_text_is_a_fault_or_refused(text: str) -> None:
    try:
        fault = parse(text)
    except ValueError:
        return
    assert parse(str(fault)) == fault


def test_calls_are_those_of_the_contract() -> None:
    served = served_calls()
    assert {"Join", "Heartbeat", "Leave", "Report", "PushPull", "Pull", "Follow", "Status", "Set"} <= served.keys()
    assert [name for name, streams in served.items() if streams] == ["PushPull", "Pull", "Follow"]
    assert made_calls().keys() == {"Join", "Heartbeat", "Leave", "Report", "PushPull", "Pull", "Status"}


def decisions(seed: int, who: str = "ps 0", probability: float = 0.3, calls: int = 1000) -> list[bool]:
    plan = FaultPlan(faults=(Fault(kind="drop", where="Join", probability=probability),), seed=seed)
    faults = Faults(plan, who)
    return [faults.strike("drop", "Join") for _ in range(calls)]


def test_a_seed_decides() -> None:
    assert decisions(7) == decisions(7)
    # 300 of 1000, give or take four standard deviations; these are fixed numbers, as the seeds are.
    assert all(242 <= sum(decisions(seed)) <= 358 for seed in range(20))
    # Seeds, processes and probabilities of their own are decisions of their own.
    others = [decisions(7), decisions(8), decisions(7, "ps 1"), decisions(7, probability=0.31)]
    assert len({tuple(other) for other in others}) == 4


def test_calls_of_other_names_change_nothing() -> None:
    plan = FaultPlan(
        faults=(
            Fault(kind="drop", where="Join", probability=0.5),
            Fault(kind="delay", where="Heartbeat", seconds=2.0, probability=0.5),
            Fault(kind="delay", where="Heartbeat", seconds=1.0),
        ),
        seed=3,
    )
    alone, mixed = Faults(plan), Faults(plan)
    expected = [alone.strike("drop", "Join") for _ in range(100)]
    got = []
    for _ in range(100):
        got.append(mixed.strike("drop", "Join"))
        assert mixed.delay("Heartbeat") in (1.0, 3.0)
        assert not mixed.strike("drop", "Heartbeat")
        assert not mixed.strike("cut", "PushPull")
        assert mixed.delay("Join") == 0
    assert got == expected
    assert 0 < sum(got) < 100
    assert (mixed.names("Join"), mixed.names("PushPull")) == (True, False)


def test_a_kill_comes_at_its_passing_of_its_point(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(ROOT), "propagate", True)
    killed: list[list[str]] = []
    passed: list[str] = []
    plan = FaultPlan(faults=(Fault(kind="kill", where="applied", passing=3), Fault(kind="kill", where="answered")))
    faults = Faults(plan, kill=lambda: killed.append([*passed]))
    for point in ("applied", "pushed.whole", "applied", "answered", "applied", "answered", "applied"):
        passed.append(point)
        faults.at(point)
    assert [len(before) for before in killed] == [4, 5]
    assert [record.getMessage() for record in caplog.records] == [
        "fault kind=kill point=answered count=1",
        "fault kind=kill point=applied count=3",
    ]
    # A point is no call.
    assert not faults.names("applied")


def test_each_fault_is_an_event_and_of_delays_a_few(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(ROOT), "propagate", True)
    faults = Faults(FaultPlan(faults=(parse("drop:Join"), parse("delay:Join=0.5"))))
    assert [(faults.strike("drop", "Join"), faults.delay("Join")) for _ in range(5)] == [(True, 0.5)] * 5
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if "drop" in line] == [f"fault kind=drop call=Join count={n}" for n in range(1, 6)]
    assert [line for line in said if "delay" in line] == [f"fault kind=delay call=Join count={n}" for n in (1, 2, 4)]


def test_no_plan_is_no_faults() -> None:
    faults = Faults(FaultPlan())
    assert not faults
    assert not any(faults.strike(kind, "Join") for kind in KINDS)
    assert faults.delay("Join") == 0
    for point in SHARD_POINTS:
        faults.at(point)


def test_a_process_that_is_started_again_is_not_killed_once_more() -> None:
    command = [
        "psserver",
        "--fault",
        "kill@applied:5",
        "--fault",
        "drop:Join@0.5",
        "--fault=kill@answered",
        "--port",
        "0",
    ]
    assert without_kills(command) == ["psserver", "--fault", "drop:Join@0.5", "--port", "0"]
    assert without_kills(["kill"]) == ["kill"]
