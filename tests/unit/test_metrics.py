"""A shard's figures for Prometheus: what is told is the state, in the form that Prometheus asks for."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from scraping import in_the_page, names_of, scraped

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.psserver import metrics
from grpc_ps.psserver.lead.log import Result
from grpc_ps.psserver.lead.membership import Member, Membership
from grpc_ps.psserver.lead.tally import STALENESS_RANGES, staleness_range
from grpc_ps.psserver.messages import shard_times
from grpc_ps.psserver.metrics import ShardCollector, staleness_buckets
from grpc_ps.psserver.metrics_server import MetricsServer
from grpc_ps.psserver.traffic import Traffic


@pytest.mark.parametrize(
    ("staleness", "number"),
    [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), (1023, 10), (1024, 11), (10**9, 11)],
)
def test_ranges_of_staleness_are_twice_as_long_each(staleness: int, number: int) -> None:
    assert staleness_range(staleness) == number


def test_applied_pushes_are_counted_by_staleness_and_others_are_not() -> None:
    member = Member(worker=0, incarnation=1, nonce=1, name="", last_beat=0.0)
    for sequence, staleness in enumerate((0, 1, 3, 2, 5), 1):
        member.decide(Result(sequence, "APPLIED", staleness))
    member.decide(Result(6, "LATE", 5))
    assert member.tally.staleness_counts == [1, 1, 2, 1] + [0] * (STALENESS_RANGES - 4)
    assert (member.tally.total_staleness, member.outcomes) == (11, {"APPLIED": 5, "LATE": 1})


def test_who_has_gone_still_counts() -> None:
    members = Membership(lease=1.0)
    for nonce, staleness in enumerate((1, 4)):
        member = members.admit(nonce, None, "", places=2, now=0.0)
        assert member is not None
        member.decide(Result(1, "APPLIED", staleness))
        members.remove(member)
    live = members.admit(9, None, "", places=2, now=0.0)
    assert live is not None
    live.decide(Result(1, "NON_FINITE"))
    assert members.tally.outcomes == {"APPLIED": 2, "NON_FINITE": 1}
    assert members.tally.staleness_counts[:5] == [0, 1, 0, 1, 0]
    # Looking at it changes nothing.
    assert (members.tally.total_staleness, live.outcomes) == (5, {"NON_FINITE": 1})


def test_buckets_are_cumulative_up_to_upper_ends() -> None:
    counts = [5, 1, 2, 1, *[0] * (STALENESS_RANGES - 5), 3]
    buckets = staleness_buckets(counts)
    assert buckets[:5] == [("0", 5.0), ("1", 6.0), ("3", 8.0), ("7", 9.0), ("15", 9.0)]
    assert buckets[-2:] == [("1023", 9.0), ("+Inf", 12.0)]


class _Shard:
    """What the collector looks at of a shard that has nothing yet."""

    def __init__(self) -> None:
        self.plan, self.opened, self.position, self.times = None, False, 7, shard_times()
        table = SimpleNamespace(spec=SimpleNamespace(name="words"), held=3, nbytes=96)
        self.tables = [table]
        self.staging = type("Staging", (), {"bytes": lambda self: 320})()
        self.sessions = _Sessions()


class _Sessions:
    traffic = Traffic(received=11, sent=12)

    def __len__(self) -> int:
        return 2


@contextmanager
def looping() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        # What was given up must have heard of it.
        for _ in range(3):
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_follower_tells_of_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "PATIENCE", 25.0)  # a busy machine may keep the loop's thread waiting
    shard: Any = _Shard()
    with looping() as loop:
        server = MetricsServer("127.0.0.1", 0, ShardCollector(loop, 1, 2, shard, None))
        try:
            told = scraped(server.url)
            assert scraped(server.url.removesuffix("metrics")).keys() == told.keys()
            with pytest.raises(urllib.error.HTTPError, match="404: Not Found") as refused:
                scraped(f"{server.url}/nosuch")
            refused.value.close()
        finally:
            server.close()
    assert told["grpc_ps_responsive"] == 1
    (info,) = (name for name in told if name.startswith("grpc_ps_shard_info"))
    assert 'role="follower",shard="1",shards="2"' in info
    assert (told["grpc_ps_log_position"], told["grpc_ps_staged_bytes"], told["grpc_ps_streams"]) == (7, 320, 2)
    assert (told['grpc_ps_table_rows{table="words"}'], told['grpc_ps_table_bytes{table="words"}']) == (3, 96)
    assert (told["grpc_ps_received_bytes_total"], told["grpc_ps_sent_bytes_total"]) == (11, 12)
    assert told["process_resident_memory_bytes"] > 1e6
    assert "grpc_ps_global_step" not in told
    assert names_of(told) <= in_the_page()


def test_a_shard_that_does_not_answer_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    shard: Any = _Shard()
    monkeypatch.setattr(metrics, "PATIENCE", 0.01)
    busy = threading.Event()
    with looping() as loop:
        loop.call_soon_threadsafe(busy.wait)
        try:
            told = list(ShardCollector(loop, 0, 1, shard, None).collect())
        finally:
            busy.set()
    assert [(family.name, family.samples[0].value) for family in told] == [("grpc_ps_responsive", 0.0)]
    # Nor one whose loop has ended.
    told = list(ShardCollector(loop, 0, 1, shard, None).collect())
    assert [(family.name, family.samples[0].value) for family in told] == [("grpc_ps_responsive", 0.0)]


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        says = f"--metrics-port {port}: 127.0.0.1:{port} cannot be had: Address already in use"
        with pytest.raises(UsageError, match=re.escape(says)):
            MetricsServer("127.0.0.1", port)
