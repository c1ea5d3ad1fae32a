"""psctl status and psctl watch: what they show of a cluster, and when watching ends."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any

import click
import pytest
from fake_control import FakeControl, job, status
from ports import held_port
from printed_tables import table_rows
from rich.console import Console

from grpc_ps.client.client import ClusterStatus
from grpc_ps.client.commands import tables
from grpc_ps.client.commands.group import run
from grpc_ps.client.commands.watch import Pace, line_of
from grpc_ps.client.shared.errors import JobFailed, PeerUnreachable
from grpc_ps.client.status import cluster_status
from grpc_ps.client.time_shares import shares
from grpc_ps.protos import control_pb2 as wire
from grpc_ps.protos.coordination_pb2 import ShardTimes, TableHeld
from grpc_ps.protos.parameter_server_pb2 import WorkerTimes

STOPPED = wire.StatusResponse.PHASE_STOPPED


def reading(step: int, uptime_ms: int, **fields: Any) -> ClusterStatus:
    return cluster_status(status(step, uptime_ms=uptime_ms, **fields))


def test_status_shows_the_job_its_shards_and_its_workers(capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = wire.Evaluation(global_step=20, metrics={"loss": 0.5, "accuracy": 0.9125})
    with FakeControl(status(evaluation=evaluation, paused=True, learning_rate_factor=0.5)) as lead:
        assert run(["status", "--ps", lead.address]) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[:3] == [
        "running, mnist, async, global step 30 of 3000, paused",
        "learning rate 0.01 (0.5 of the schedule's), no worker waits for slower ones, loss 0.25",
        "evaluation at global step 20: accuracy 0.9125, loss 0.5",
    ]
    assert table_rows(output, "workers") == [
        "0 a:1 up 8 318,040 57 0",
        "1 b:2 down 5 310,000 50 7",
        "1 host:17 computing, evaluates 15 44 12 2 1 4 (1.5, 7) 0.25 1.5 s",
    ]


def test_status_shows_the_rows_of_tables(capsys: pytest.CaptureFixture[str]) -> None:
    words, users = (
        TableHeld(name="words", rows=1200, capacity=5000, bytes=614_400),
        TableHeld(name="users", rows=77, bytes=4928),
    )
    shards = [wire.ShardStatus(shard=0, tables=[users, words]), wire.ShardStatus(shard=1, tables=[words])]
    for flags in ([], ["--json"]):
        with FakeControl(status(shards=shards)) as lead:
            assert run(["status", "--ps", lead.address, *flags]) == 0
    text, _, record = capsys.readouterr().out.partition("\n{")
    assert table_rows(text[text.index("tables") :], "workers")[:3] == [
        "users 0 77 4,928",
        "words 0 1,200 5,000 614,400",
        "words 1 1,200 5,000 614,400",
    ]
    told = {"name": "words", "rows": 1200, "capacity": 5000, "bytes": 614_400}
    assert [shard["tables"][-1] for shard in json.loads("{" + record)["shards"]] == [told, told]
    assert tables.held_table(reading(30, 5000)).row_count == 0


def timed(steps: int = 0, seconds: float = 0.0) -> dict[str, Any]:
    """Shards and workers that have told their times; `seconds` more of computing in so many more steps."""
    ours = WorkerTimes(steps=100 + steps, input=0.1, compute=1 + seconds, encode=0.2, answer=1.5, receive=0.5)
    told = ShardTimes(pushes=200, stage=0.2, updates=100, apply=0.3, releases=50, encode=0.1)
    worker = {"held_seconds": 0.5, "applied": 101}
    workers = [
        wire.WorkerStatus(worker=0, incarnation=4, times=ours, **worker),
        wire.WorkerStatus(worker=1, incarnation=5),
        wire.WorkerStatus(worker=12, incarnation=6, times=WorkerTimes(steps=1, compute=123.456, answer=6.5)),
    ]
    shards = [wire.ShardStatus(shard=0, times=told), wire.ShardStatus(shard=1)]
    return {"workers": workers, "shards": shards}


TIMES = [
    "0 33.00 1.00 (3%) 10.00 (30%) 2.00 (6%) 9.00 (27%) 6.00 (18%) 5.00 (15%)",
    "12 129956 0.00 (0%) 123456 (95%) 0.00 (0%) 6494 (5%) 6.00 (0%) 0.00 (0%)",
    "0 6.00 1.00 (17%) 3.00 (50%) 2.00 (33%)",
]


def test_status_shows_where_the_time_goes(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl(status(**timed())) as lead:
        assert run(["status", "--ps", lead.address]) == 0
    output = capsys.readouterr().out
    heads = [line.split() for line in output.splitlines() if " all" in line]
    assert heads == [
        ["worker", "all", "input", "compute", "encode", "wire", "shard", "wait"],
        ["shard", "all", "stage", "apply", "encode"],
    ]
    titles = ("workers", "time of a step, ms", "time on a shard, ms")
    assert table_rows(output, *titles)[-3:] == TIMES
    lines = [line.rstrip() for line in output.splitlines()]
    assert max(map(len, lines[lines.index(titles[1]) :])) <= 100


def test_before_anybody_has_told_its_times_there_is_no_table_of_them() -> None:
    assert tables.times_tables(shares(reading(30, 5000))) == []
    assert tables.step_time(shares(reading(30, 5000))) == ""


def test_status_as_json_has_the_times_as_they_were_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl(status(**timed())) as lead:
        assert run(["status", "--ps", lead.address, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    told = {"pushes": 200, "stage": 0.2, "updates": 100, "apply": 0.3, "releases": 50, "encode": 0.1}
    assert [shard["times"] for shard in record["shards"]] == [told, None]
    ours = {"steps": 100, "input": 0.1, "compute": 1.0, "encode": 0.2, "answer": 1.5, "receive": 0.5}
    assert [worker["times"] for worker in record["workers"]][:2] == [ours, None]
    assert [worker["held_seconds"] for worker in record["workers"]] == [0.5, 0.0, 0.0]


def test_watch_shows_the_times_of_the_last_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    worker = {"workers": timed()["workers"][:1]}
    later = {"workers": timed(10, 0.02)["workers"][:1], "shards": timed()["shards"]}
    readings = [
        status(30, uptime_ms=5000, **{**timed(), **worker}),
        status(40, uptime_ms=6000, phase=STOPPED, **later),
    ]
    with FakeControl(*readings) as lead:
        assert run(["watch", "--ps", lead.address, "--interval", "0.001"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert ", workers 1, step 33.00 ms (compute 30%, wire 27%)" in first
    assert ", workers 1, step 2.00 ms (compute 100%, input 0%)" in second


def test_status_of_a_synchronous_job_that_ends_by_a_metric() -> None:
    spec = job(mode="sync", workers=3, backup=1, min_workers=2, until="accuracy>=0.97")
    now = cluster_status(status(job=spec))
    assert tables.details(now) == "learning rate 0.01, N = 3, K = 1, at least 2 workers, until accuracy>=0.97"


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"mode": "sync", "workers": 3, "backup": 0, "min_workers": 1}, "N = 3, K = 0, at least 1 worker"),
        ({"max_staleness": 0}, "at most 0 pushes ahead of the slowest"),
        ({"max_staleness": 1}, "at most 1 push ahead of the slowest"),
        ({"max_staleness": 2}, "at most 2 pushes ahead of the slowest"),
    ],
)
def test_one_is_not_several(settings: dict[str, Any], shown: str) -> None:
    assert tables.details(cluster_status(status(job=job(**settings)))) == f"learning rate 0.01, {shown}"


FAILED = {"phase": STOPPED, "exit_code": 5, "reason": "worker 1:\nNaN in w"}


def test_a_job_that_has_failed_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl(status(**FAILED)) as lead:
        assert run(["status", "--ps", lead.address]) == 0
    first = "stopped, mnist, async, global step 30 of 3000, failed with exit code 5: worker 1: NaN in w"
    assert capsys.readouterr().out.splitlines()[0] == first
    text = r"^the job has failed with exit code 5: worker 1:\nNaN in w$"
    with FakeControl(status(20), status(**FAILED)) as lead, pytest.raises(JobFailed, match=text) as failed:
        run(["watch", "--ps", lead.address, "--interval", "0.001"])
    assert failed.value.exit_code == 5
    running, stopped = capsys.readouterr().out.splitlines()
    assert stopped.startswith(first)
    assert "failed" not in running
    with FakeControl(status(**FAILED)) as lead:
        assert run(["status", "--ps", lead.address, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["exit_code"], record["reason"]) == (5, "worker 1:\nNaN in w")


@pytest.mark.parametrize(
    ("reason", "how"),
    [
        ("", "done"),
        ("all workers are out of data", "done"),
        ("stopped on request", "stopped"),
        ("cancelled on request", "stopped"),
    ],
)
def test_a_job_that_nobody_had_to_stop_is_done(reason: str, how: str) -> None:
    now = cluster_status(status(phase=STOPPED, reason=reason))
    because = f", {reason}" if reason else ""
    assert tables.headline(now) == f"{how}, mnist, async, global step 30 of 3000{because}"


def test_status_before_there_is_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    empty = wire.StatusResponse(phase=wire.StatusResponse.PHASE_EMPTY, waiting_for="shard 1 of 2 to connect")
    with FakeControl(empty) as lead:
        assert run(["status", "--ps", lead.address]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "empty, global step 0, waiting for shard 1 of 2 to connect"


def test_status_as_json_has_everything_but_the_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl(status(evaluation=wire.Evaluation(global_step=20, metrics={"loss": 0.5}))) as lead:
        assert run(["status", "--ps", lead.address, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["phase"], record["global_step"], record["position"], record["paused"]) == ("running", 30, 57, False)
    assert record["evaluation"] == {"global_step": 20, "metrics": {"loss": 0.5}}
    (worker,) = record["workers"]
    assert (worker["mean_staleness"], worker["max_staleness"], worker["activity"]) == (1.5, 7, "computing")
    assert "parameters" not in record
    assert record["loss"] == 0.25


def test_watch_prints_a_line_a_reading_until_the_job_stops(capsys: pytest.CaptureFixture[str]) -> None:
    readings = [status(30, uptime_ms=5000), status(130, uptime_ms=5500), status(200, uptime_ms=6000, phase=STOPPED)]
    with FakeControl(*readings) as lead:
        assert run(["watch", "--ps", lead.address, "--interval", "0.001"]) == 0
    tail = "learning rate 0.01, no worker waits for slower ones, workers 1, loss 0.25, late 2"
    assert capsys.readouterr().out.splitlines() == [
        f"running, mnist, async, global step 30 of 3000, {tail}",
        f"running, mnist, async, global step 130 of 3000, 200 steps/s, {tail}",
        f"done, mnist, async, global step 200 of 3000, 170 steps/s, {tail}",
    ]


def test_watch_as_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl(status(30, uptime_ms=5000), status(60, uptime_ms=6000, phase=STOPPED)) as lead:
        assert run(["watch", "--ps", lead.address, "--interval", "0.001", "--json"]) == 0
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["global_step"], first["steps_per_second"]) == (30, None)
    assert (last["global_step"], last["steps_per_second"], last["phase"]) == (60, 30.0, "stopped")


def test_watch_ends_well_when_nobody_reads_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    # Written out at the end of the `with`, as Python does at its own end: that must find somewhere to go.
    with FakeControl() as lead, open(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        assert run(["watch", "--ps", lead.address, "--interval", "0.001"]) == 0
        stdout.write("more")


def test_watch_ends_well_when_the_lead_goes(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl(status(), status(), then_gone=True) as lead:
        assert run(["watch", "--ps", lead.address, "--interval", "0.001"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_watch_of_a_lead_that_was_never_there() -> None:
    with held_port() as port, pytest.raises(PeerUnreachable, match=f"^127.0.0.1:{port}: "):
        run(["watch", "--ps", f"127.0.0.1:{port}", "--interval", "0.001"])


@pytest.mark.parametrize("value", ["0", "-1", "nan", "x"])
def test_b08_the_interval_is_above_zero(value: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        run(["watch", "--ps", "a:1", "--interval", value])
    assert refused.value.format_message() == f"--interval {value}: must be a finite number above 0"


def test_on_a_terminal_a_table_is_drawn_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=160, height=50, color_system=None)
    monkeypatch.setattr(tables, "console", lambda: console)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with FakeControl(status(30, uptime_ms=5000), status(60, uptime_ms=6000, phase=STOPPED)) as lead:
        assert run(["watch", "--ps", lead.address, "--interval", "0.001"]) == 0
    shown = screen.getvalue()
    assert "running, mnist, async, global step 30 of 3000" in shown
    assert "done, mnist, async, global step 60 of 3000, 30 steps/s" in shown
    assert shown.count("workers") == shown.count("shards") >= 2
    assert "\x1b[1A" in shown, "the second table stands where the first one stood"
    assert capsys.readouterr().out == ""


def test_the_pace_is_over_ten_seconds() -> None:
    pace = Pace()
    assert pace(reading(0, 1000)) is None
    assert pace(reading(10, 2000)) == 10
    assert pace(reading(10, 11_000)) == 1
    # The first reading is older than ten seconds now.
    assert pace(reading(20, 12_000)) == 1
    assert pace(reading(20, 100_000)) == 0


def test_a_lead_that_has_started_anew_has_no_pace_yet() -> None:
    pace = Pace()
    pace(reading(50, 9000))
    assert pace(reading(10, 1000, generation=3)) is None
    assert pace(reading(30, 2000, generation=3)) == 20


def test_a_line_without_workers() -> None:
    assert line_of(reading(0, 0, workers=[]), None).endswith("no worker waits for slower ones, workers 0")
