"""What peers may ask of a shard at most."""

from __future__ import annotations

import pytest

from grpc_ps.client.shared.errors import Full
from grpc_ps.psserver.peer_limits import Allowances, Unattached


def test_a_burst_then_the_rate() -> None:
    allowances = Allowances(per_second=10, at_once=5)
    assert [allowances.take("a", 0.0) for _ in range(7)] == [True] * 5 + [False] * 2
    assert [allowances.take("a", 0.1) for _ in range(2)] == [True, False]
    # Refused calls cost nothing; what is saved up never exceeds a burst.
    assert [allowances.take("a", 100.0) for _ in range(6)] == [True] * 5 + [False]


def test_connections_do_not_pay_for_each_other() -> None:
    allowances = Allowances(per_second=1, at_once=1)
    assert [allowances.take(f"ipv4:127.0.0.1:{port}", 0.0) for port in range(300)] == [True] * 300
    assert not allowances.take("ipv4:127.0.0.1:0", 0.0)


def test_a_long_run_gets_the_rate() -> None:
    allowances = Allowances(per_second=100, at_once=10)
    allowed = sum(allowances.take("a", step / 1000) for step in range(10_000))
    assert allowed == pytest.approx(10 + 10 * 100, abs=1)


def test_quiet_connections_are_forgotten() -> None:
    allowances = Allowances(per_second=10, at_once=5)
    for number in range(1000):
        allowances.take(str(number), number / 1024)
    assert len(allowances) == 513  # those of the last half second, in which a bucket fills
    allowances.take("new", 100.0)
    assert len(allowances) == 1


def test_streams_that_have_not_attached_are_counted_and_given_back() -> None:
    unattached = Unattached(limit=2)
    with unattached.one():
        with unattached.one():
            with pytest.raises(Full, match="2 training streams have not attached yet"), unattached.one():
                pass
            assert unattached.count == 2
        with pytest.raises(ValueError, match="any"), unattached.one():
            raise ValueError("any")
        assert unattached.count == 1
    assert unattached.count == 0
