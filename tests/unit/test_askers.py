"""Newcomers that wait for indices whose holders are silent: not more than there may be."""

from __future__ import annotations

import pytest
from job_driver import Driver

from grpc_ps.psserver.lead.membership import MAX_ASKERS
from grpc_ps.psserver.lead.refusal import Refusal


def test_those_who_wait_for_an_index_are_bounded() -> None:
    driver = Driver()
    driver.open()
    for nonce in range(100, 100 + MAX_ASKERS):
        assert driver.try_join(nonce, index=0).state == "WAITING"
    with pytest.raises(Refusal, match="1000 newcomers wait for indices") as refused:
        driver.try_join(7, index=0)
    assert refused.value.reason == "FULL"
    # Who waits already, waits on; and a place that is free has no queue.
    assert driver.try_join(100, index=0).state == "WAITING"
    assert driver.try_join(7, index=1).state == "MEMBER"
