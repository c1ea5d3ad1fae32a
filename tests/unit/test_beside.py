"""How long the evaluator of a TF_CONFIG follows a job whose lead has gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpc_ps.client import ClusterStatus, PSClient
from grpc_ps.client.shared.errors import PeerLost, PeerUnreachable
from grpc_ps.client.status import CheckpointStatus
from grpc_ps.worker.beside import _follow

GONE = PeerUnreachable("a:1 is gone")


def status(step: int, *, saved: bool = True, phase: str = "running") -> ClusterStatus:
    return ClusterStatus(
        run=1,
        generation=1,
        phase=phase,
        global_step=step,
        model="m",
        settings={"steps": 100},
        shards=(),
        workers=(),
        opened=1,
        uptime_ms=0,
        waiting_for="",
        checkpoint=CheckpointStatus(directory="saved") if saved else None,
    )


class Scripted(PSClient):
    """Answers what the script says, one after the other, and the last one for ever."""

    def __init__(self, *script: ClusterStatus | Exception) -> None:
        super().__init__("127.0.0.1:1", timeout=1.0)
        self.script = [*script]

    def status(self) -> ClusterStatus:
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def followed(*script: ClusterStatus | Exception, seconds: float = 60.0) -> list[int]:
    """The steps that are evaluated."""
    steps: list[int] = []
    evaluation: Any = SimpleNamespace(begin=lambda every, report: None, maybe=steps.append)
    _follow(lambda: Scripted(status(0), *script), evaluation, seconds, 0.001, lambda _: None)
    return steps


def test_a_lead_that_is_started_again_goes_on_from_its_checkpoint() -> None:
    script = (status(5), GONE, PeerLost("a:1 broke off"), GONE, status(3), GONE, status(7), status(8, phase="stopped"))
    assert followed(*script) == [5, 3, 7, 8]


@pytest.mark.parametrize("last", [status(5, saved=False), status(100)])
def test_a_lead_that_does_not_come_back_has_ended(last: ClusterStatus) -> None:
    assert followed(last, GONE, status(101)) == [last.global_step]


def test_a_lead_that_stays_away_is_not_waited_for_without_end() -> None:
    assert followed(status(5), GONE, seconds=0.01) == [5]
