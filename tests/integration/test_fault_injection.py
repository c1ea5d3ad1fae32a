"""Each kind of `--fault` against a cluster: training reaches its step, and every push is applied once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from history import wait_for
from light_worker import Gradient, Outcome, constant, gathered, run_worker, run_workers, scalar
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import PeerUnreachable
from grpc_ps.client.shared.fault_flags import served_calls
from grpc_ps.client.shared.faults import SHARD_POINTS, FaultPlan, Faults, parse_fault
from grpc_ps.client.shared.logs import ROOT
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.lead.limits import Limits

STEPS = 40
EXACT = {"optimizer": "sgd", "learning_rate": 2.0**-10, "steps": STEPS}
PARAMETERS = [scalar("w"), scalar("v")]
ZEROS = {name: np.zeros((), np.float32) for name in ("w", "v")}
ONES = constant(1.0)


def plan(*texts: str, seed: int = 0) -> FaultPlan:
    calls = served_calls()
    return FaultPlan(faults=tuple(parse_fault(text, calls, SHARD_POINTS) for text in texts), seed=seed)


class Struck(logging.Handler):
    """Counts the events of faults, by kind and call."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        words = record.getMessage().split()
        if words[0] == "fault":
            fields = dict(word.split("=", 1) for word in words[1:])
            self.faults[f"{fields['kind']}:{fields['call']}"] += 1


@pytest.fixture
def struck() -> Iterator[Counter[str]]:
    """The faults that have struck so far."""
    handler = Struck()
    logger = logging.getLogger(ROOT)
    logger.addHandler(handler)
    yield handler.faults
    logger.removeHandler(handler)


def train(faults: FaultPlan, gradient: Gradient = ONES, **settings: Any) -> tuple[LocalCluster, list[Outcome]]:
    """Trains to the end on two shards that meet the faults; the model is exact, and nothing is applied twice."""
    with LocalCluster(2, presets={**EXACT, **settings}, faults=faults) as cluster:
        both = gathered(cluster, 2, gradient)
        done = run_workers(2, lambda number: run_worker(cluster.addresses, PARAMETERS, both, rejoin=True))
        assert cluster.wait_ended() == [None, None]
    cluster.history.check()
    assert cluster.history.step == STEPS
    for outcome in done:
        assert outcome.global_step == STEPS
        assert {name: float(value) for name, value in outcome.parameters.items()} == {
            "w": -STEPS / 1024,
            "v": -STEPS / 1024,
        }
    return cluster, done


@pytest.mark.parametrize(
    ("fault", "at_least"),
    [
        ("delay:PushPull=0.005@0.3", 4),
        ("delay:Follow=0.005@0.3", 4),
        ("delay:Heartbeat=0.2", 1),
        ("drop:Join@0.5", 1),
        ("drop-answer:Join@0.5", 1),
        ("duplicate:Join", 2),
        ("duplicate:Heartbeat", 2),
        ("duplicate:Leave", 1),
        ("drop:PushPull@0.5", 1),
        ("drop-answer:PushPull@0.1", 5),
        ("cut:PushPull@0.05", 5),
        ("cut:Follow@0.05", 3),
    ],
)
def test_training_survives(fault: str, at_least: int, struck: Counter[str]) -> None:
    """Exactly once, whatever a network does."""
    kind = fault.partition("=")[0].partition("@")[0]

    def gradient(worker: int, batch: int, values: Mapping[str, np.ndarray]) -> tuple[Mapping[str, np.ndarray], int]:
        if kind.endswith(":Heartbeat"):
            # Nobody waits for those, and the job may be over before.
            wait_for(lambda: struck[kind] >= at_least, "heartbeats")
        return ONES(worker, batch, values)

    cluster, done = train(plan(fault, seed=1), gradient)
    assert struck[kind] >= at_least
    assert len(cluster.history.applied_batches()) == STEPS
    # Nobody was taken for dead.
    assert [outcome.lives for outcome in done] == [1, 1]


def test_training_survives_everything_at_once_in_rounds(struck: Counter[str]) -> None:
    streams = ("cut:PushPull@0.03", "drop-answer:PushPull@0.03", "drop:PushPull@0.2", "delay:PushPull=0.002@0.2")
    kinds = (*streams, "duplicate:Join@0.5", "drop-answer:Join@0.5", "drop:Heartbeat@0.3", "cut:Follow@0.02")
    cluster, _ = train(plan(*kinds, seed=2), mode="sync", workers=2)
    cluster.history.check_rounds(lambda update: 2)
    assert {kind.partition("=")[0].partition("@")[0] for kind in kinds} <= struck.keys() | {"drop:Heartbeat"}


@pytest.mark.parametrize(
    ("fault", "at_least"),
    [
        ("delay:PushPull=0.005@0.3", 4),
        ("cut:PushPull@0.05", 2),
        ("drop:PushPull@0.5", 1),
        ("drop:Join@0.5", 1),
        ("drop-answer:Join@0.5", 1),
        ("duplicate:Join", 1),
        ("drop-answer:Leave", 1),
        ("cut:PushPull@0.05 delay:PushPull=0.001 duplicate:Leave drop-answer:Heartbeat@0.5", 4),
    ],
)
def test_training_survives_the_faults_of_a_worker(fault: str, at_least: int, struck: Counter[str]) -> None:
    """One of two workers meets them; the other one is served as ever."""
    faulty = Faults(plan(*fault.split(), seed=3), "worker 0")

    def work(number: int) -> Outcome:
        faults = None if number else faulty
        return run_worker(cluster.addresses, PARAMETERS, ONES, index=number, rejoin=True, faults=faults)

    presets = {**EXACT, "mode": "sync", "workers": 2}
    with LocalCluster(2, presets=presets) as cluster:
        done = run_workers(2, work)
        assert cluster.wait_ended() == [None, None]
    cluster.history.check_rounds(lambda update: 2)
    assert sum(struck.values()) >= at_least
    assert [outcome.global_step for outcome in done] == [STEPS, STEPS]
    assert [float(outcome.parameters["w"]) for outcome in done] == [-STEPS / 1024] * 2
    assert [outcome.lives for outcome in done] == [1, 1]


def test_a_worker_whose_heartbeats_are_lost_loses_its_lease() -> None:
    """All of them, for longer than the lease: it is gone for the lead, whatever its streams say."""
    limits = Limits(lease=0.5)
    with LocalCluster(1, presets={**EXACT, "steps": 0}, limits=limits, faults=plan("drop:Heartbeat")) as cluster:
        history = cluster.history
        with PSClient(cluster.addresses, timeout=20.0) as client:
            session = client.join("test", PARAMETERS)
            session.open(ZEROS)
            session.begin()
            wait_for(lambda: any("FENCED" in str(entry) for _, entry in history.entries[0]), "the end of the lease")


def test_a_dropped_call_is_not_carried_out_and_a_lost_answer_is(struck: Counter[str]) -> None:
    lost = r"^127\.0\.0\.1:\d+: StopJob was lost by --fault$"
    with LocalCluster(1, faults=plan("drop:StopJob")) as cluster, PSClient(cluster.addresses) as client:
        with pytest.raises(PeerUnreachable, match=lost):
            client.stop()
        assert client.status().phase == "empty"
    with LocalCluster(1, faults=plan("drop-answer:StopJob")) as cluster, PSClient(cluster.addresses) as client:
        with pytest.raises(PeerUnreachable, match=lost):
            client.stop()
        assert cluster.wait_ended() == [None]
    assert struck == {"drop:StopJob": 1, "drop-answer:StopJob": 1}


def test_a_duplicate_is_carried_out_twice_and_its_second_answer_counts() -> None:
    with LocalCluster(1, presets=EXACT, faults=plan("duplicate:Join")) as cluster:
        lead: Any = cluster.servers[0]._coordinator
        join, replies = lead.reception.join, []

        async def noted(*what: Any) -> Any:
            replies.append(await join(*what))
            return replies[-1]

        lead.reception.join = noted
        run_worker(cluster.addresses, PARAMETERS, ONES)
        members = [reply.member for reply in replies if reply.member is not None]
        # The first one made the member, the second one found it.
        assert len({member.incarnation for member in members}) == 1
        assert len(members) >= 2


def test_a_reader_meets_faults_too() -> None:
    with LocalCluster(1, faults=plan("cut:Pull@1")) as cluster, PSClient(cluster.addresses, timeout=20.0) as client:
        session = client.join("test", PARAMETERS)
        session.open(ZEROS)
        session.begin()
        with pytest.raises(PeerUnreachable, match=r"Pull was lost by --fault"):
            client.pull()


@pytest.mark.parametrize(
    ("point", "pushes", "updates"),
    [
        # The first push of all has the initial values; the first answer has the first batch.
        ("pushed.header", 4, 3),
        ("pushed.whole", 4, 3),
        ("applied", 5, 5),
        ("answered", 4, 4),
    ],
)
def test_where_the_points_of_a_shard_are(point: str, pushes: int, updates: int) -> None:
    """What has happened, at the fifth passing of a point, of the pushes of one worker."""
    with LocalCluster(1, presets={**EXACT, "steps": 8}, faults=plan(f"kill@{point}:5")) as cluster:
        server: Any = cluster.servers[0]
        seen: list[tuple[int, int]] = []
        server._faults._kill = lambda: seen.append((begun.count("GRADIENTS"), cluster.history.step))
        begun: list[str] = []
        staging, begin = server._replay.staging, server._replay.staging.begin

        def noted(header: PushHeader) -> Any:
            begun.append(PushHeader.Kind.Name(header.kind).removeprefix("KIND_"))
            return begin(header)

        staging.begin = noted
        run_worker(cluster.addresses, PARAMETERS, ONES)
    assert seen == [(pushes, updates)]


def test_without_faults_nothing_is_in_the_way() -> None:
    with LocalCluster(1) as cluster:
        assert not cluster.servers[0]._faults
