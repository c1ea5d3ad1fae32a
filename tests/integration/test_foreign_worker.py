"""The specification is enough to write a worker: one that knows nothing else trains, alone and beside the client."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import foreign_worker
import grpc
import numpy as np
import pytest
from foreign_worker import LINEAR, ForeignWorker, Model, Plan, Values
from light_worker import run_worker, scalar
from local_cluster import LocalCluster

from grpc_ps.protos import control_pb2, control_pb2_grpc, job_pb2, tensor_pb2
from grpc_ps.protos import parameter_server_pb2 as pb
from grpc_ps.protos.parameter_server_pb2_grpc import ParameterServerStub
from grpc_ps.psserver.lead.limits import Limits

T = TypeVar("T")
DEADLINE = 60.0
RATE = 0.1
SETTINGS: dict[str, Any] = {"learning_rate": RATE, "batch_size": 16, "seed": 7}


def stated(**settings: Any) -> job_pb2.Settings:
    return job_pb2.Settings(**{**SETTINGS, **settings})


def start(work: Callable[[], T]) -> Future[T]:
    """Runs it in a thread that outlives no process."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def read(addresses: list[str], plan: Plan) -> tuple[int, dict[str, np.ndarray]]:
    """Returns global step and values, as the specification's "A minimal reader" says."""
    channels = [grpc.insecure_channel(address) for address in addresses]
    stubs = [ParameterServerStub(channel) for channel in channels]
    streams = [stubs[0].Pull(pb.PullRequest(), timeout=DEADLINE)]
    firsts = [foreign_worker.take(streams[0])]
    streams += [stub.Pull(pb.PullRequest(snapshot=firsts[0].meta.snapshot), timeout=DEADLINE) for stub in stubs[1:]]
    firsts += [foreign_worker.take(stream) for stream in streams[1:]]
    images = [foreign_worker.take_image(*each) for each in zip(firsts, streams, strict=True)]
    for channel in channels:
        channel.close()
    assert [len(image) for image in images] == [first.meta.total_bytes for first in firsts]
    [(_, step)] = {(first.meta.generation, first.meta.global_step) for first in firsts}
    return step, plan.unpack(images)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One foreign worker at the end of its job, and the model as it read it then."""

    worker: ForeignWorker
    step: int
    values: dict[str, np.ndarray]


def train(addresses: str, settings: job_pb2.Settings, model: Model = LINEAR) -> Trained:
    shards = addresses.split(",")
    with ForeignWorker(shards, model, settings) as worker:
        worker.train()
        step, values = read(shards, Plan(model.job.parameters, len(shards)))
    return Trained(worker=worker, step=step, values=values)


def assert_found(values: Values) -> None:
    assert float(values["w"]) == pytest.approx(0.1, abs=0.01)
    assert float(values["b"]) == pytest.approx(0.3, abs=0.01)


def replayed(rounds: list[list[int]]) -> dict[str, float]:
    """What the model is after rounds of these batch numbers, by this process's own arithmetic."""
    values = {name: np.zeros((), np.float32) for name in ("w", "b")}
    for batches in rounds:
        gradients = [foreign_worker.linear_gradient(values, batch, stated())[0] for batch in batches]
        for name in values:
            mean = np.mean([gradient[name] for gradient in gradients], dtype=np.float32)
            values[name] = np.asarray(values[name] - np.float32(RATE) * mean)
    return {name: float(value) for name, value in values.items()}


def test_the_worker_imports_the_generated_code_and_nothing_else_of_ours() -> None:
    program = "import sys, foreign_worker; print(*sorted(name for name in sys.modules if name.startswith('grpc_ps.')))"
    tests = Path(foreign_worker.__file__).parent
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=tests, capture_output=True, text=True, timeout=DEADLINE, check=True
    ).stdout.split()
    assert {name for name in loaded if not name.startswith("grpc_ps.protos.")} == {"grpc_ps.protos"}


def test_alone_it_trains_linear_on_two_shards() -> None:
    with LocalCluster(2) as cluster:
        trained = train(cluster.addresses, stated(steps=300))
        ended = cluster.wait_ended()
    worker = trained.worker
    assert worker.done == (0, "")
    assert trained.step == 300
    assert worker.batches == list(range(300))
    assert worker.outcomes == dict.fromkeys(range(1, 302), "OUTCOME_APPLIED")
    assert_found(trained.values)
    # One worker's steps are one after the other: no parameter was of another step than its number says.
    expected = replayed([[batch] for batch in range(300)])
    assert {name: float(value) for name, value in trained.values.items()} == pytest.approx(expected, abs=1e-6)
    assert ended == [None, None], "the shards did not see it leave"


def test_two_of_them_train_in_sync() -> None:
    with LocalCluster(2) as cluster:
        settings = stated(mode="sync", workers=2, steps=150)
        both = [start(lambda: train(cluster.addresses, settings)) for _ in range(2)]
        one, other = [future.result(DEADLINE) for future in both]
        ended = cluster.wait_ended()
    assert one.worker.done == other.worker.done == (0, "")
    assert one.step == other.step == 150
    assert len(one.worker.batches) == len(other.worker.batches) == 150
    assert sorted(one.worker.batches + other.worker.batches) == list(range(300))
    assert {*one.worker.outcomes.values(), *other.worker.outcomes.values()} == {"OUTCOME_APPLIED"}
    assert_found(one.values)
    expected = replayed([sorted(pair) for pair in zip(one.worker.batches, other.worker.batches, strict=True)])
    assert {name: float(value) for name, value in one.values.items()} == pytest.approx(expected, abs=1e-6)
    assert ended == [None, None]


def wait_open(cluster: LocalCluster) -> None:
    """Waits until a worker's initial values are the job's."""
    deadline = time.monotonic() + DEADLINE
    with grpc.insecure_channel(cluster.servers[0].address) as channel:
        control = control_pb2_grpc.ControlStub(channel)
        while not control.Status(control_pb2.StatusRequest(), timeout=10).opened:
            assert time.monotonic() < deadline, "nobody opened the job"
            time.sleep(0.01)


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("foreigner_opens", [True, False])
def test_it_trains_beside_the_client(mode: str, foreigner_opens: bool) -> None:
    """They share one job: each reads what the other has added, whichever of them has opened it."""
    # In async the job starts with one worker: neither uses it up before the other is there and has pushed once.
    together = threading.Barrier(2)
    foreign_batches: list[int] = []
    own_batches: list[int] = []

    def foreign(values: Values, batch: int, settings: job_pb2.Settings) -> tuple[Values, int]:
        if len(foreign_batches) < 2:
            together.wait(DEADLINE)
        foreign_batches.append(batch)
        return foreign_worker.linear_gradient(values, batch, settings)

    def own(worker: int, batch: int, values: Values) -> tuple[Values, int]:
        if len(own_batches) < 2:
            together.wait(DEADLINE)
        own_batches.append(batch)
        return foreign_worker.linear_gradient(values, batch, stated())

    presets = {"mode": mode, "workers": 2, "steps": 200, **SETTINGS}
    with LocalCluster(2, presets=presets) as cluster:
        foreign_work = partial(train, cluster.addresses, job_pb2.Settings(), LINEAR._replace(gradient=foreign))
        own_work = partial(run_worker, cluster.addresses, [scalar("w"), scalar("b")], own)
        if foreigner_opens:
            theirs = start(foreign_work)
            wait_open(cluster)
            ours = start(own_work)
        else:
            ours = start(own_work)
            wait_open(cluster)
            theirs = start(foreign_work)
        trained, outcome = theirs.result(DEADLINE), ours.result(DEADLINE)
        ended = cluster.wait_ended()
    assert (trained.worker.member.state == pb.JoinResponse.STATE_OPENER) is foreigner_opens
    assert trained.worker.done == (0, "")
    assert trained.step == outcome.global_step == 200
    gradients = {key: value for key, value in trained.worker.outcomes.items() if key > 1 or not foreigner_opens}
    applied = list(gradients.values()).count("OUTCOME_APPLIED")
    assert applied + outcome.outcomes["APPLIED"] == (200 if mode == "async" else 400)
    assert min(applied, outcome.outcomes["APPLIED"]) > 0
    assert {*gradients.values()} <= {"OUTCOME_APPLIED", "OUTCOME_DONE"}
    assert_found(trained.values)
    assert {name: float(value) for name, value in trained.values.items()} == {
        name: float(value) for name, value in outcome.parameters.items()
    }
    assert ended == [None, None]


def test_its_heartbeats_keep_it_a_member_through_a_long_step() -> None:

    def slow(values: Values, batch: int, settings: job_pb2.Settings) -> tuple[Values, int]:
        if batch == 1:
            deadline = time.monotonic() + DEADLINE
            while worker.beats < 6:  # Four make a lease.
                assert time.monotonic() < deadline, f"{worker.beats} heartbeats were answered"
                time.sleep(0.01)
        return foreign_worker.linear_gradient(values, batch, settings)

    with LocalCluster(2, limits=Limits(lease=3.0)) as cluster:
        shards = cluster.addresses.split(",")
        with ForeignWorker(shards, LINEAR._replace(gradient=slow), stated(steps=3)) as worker:
            worker.train()
        ended = cluster.wait_ended()
    assert worker.batches == [0, 1, 2]
    assert set(worker.outcomes.values()) == {"OUTCOME_APPLIED"}
    assert ended == [None, None]


def test_a_stream_that_breaks_ends_it_while_it_reads_another() -> None:
    """The lead never answers a push that another shard lost: reading shard after shard would be for ever."""

    def cut(values: Values, batch: int, settings: job_pb2.Settings) -> tuple[Values, int]:
        if batch == 2:
            worker._links[1].responses.cancel()
        return foreign_worker.linear_gradient(values, batch, settings)

    with (
        LocalCluster(2) as cluster,
        ForeignWorker(cluster.addresses.split(","), LINEAR._replace(gradient=cut), stated()) as worker,
    ):
        trained = start(worker.train)
        with pytest.raises((grpc.RpcError, foreign_worker.BrokenContract)):
            trained.result(DEADLINE)
    assert worker.batches == [0, 1, 2]


def parameter(name: str, dtype: str, shape: tuple[int, ...] = (), trainable: bool = True) -> tensor_pb2.Parameter:
    return tensor_pb2.Parameter(name=name, dtype=f"DTYPE_{dtype.upper()}", shape=shape, trainable=trainable)


PAGE = [
    parameter("table", "float32", (35000, 4)),
    parameter("bias", "float32", (10,)),
    parameter("empty", "float32", (0, 4)),
    parameter("mask", "bool", (5,), trainable=False),
    parameter("mean", "float64", (3,), trainable=False),
    parameter("step", "int64", (), trainable=False),
]
NAMES = [
    parameter(name, "float32", (3,))
    for name in ("a'b", 'a"b', "a'\"b", "a\\b", "a\tb\n", "\x7f", "ä", "Ω", "\U0001d6fc", " ")
]
SIZES = [parameter(f"p{count}", "float16", (count,)) for count in (0, 1, 131072, 131073, 300_000, 4_194_304, 9_000_001)]
KINDS = [parameter(dtype, dtype, (7, 5), trainable=False) for dtype in foreign_worker.ITEM_BYTES]


@pytest.mark.parametrize("shard_count", [1, 2, 3, 5])
def test_its_placements_have_the_fingerprints_of_the_jobs(shard_count: int) -> None:
    """`Join` tells the lead's; leaving before the job opens lets the next one be of another model."""
    with LocalCluster(shard_count) as cluster:
        for parameters in (foreign_worker.SCALARS, PAGE, NAMES, SIZES, KINDS, [*PAGE, *NAMES, *SIZES, *KINDS]):
            model = LINEAR._replace(job=job_pb2.JobSpec(model="placed", parameters=parameters))
            with ForeignWorker(cluster.addresses.split(","), model, stated()) as worker:
                fingerprint = Plan(parameters, shard_count).fingerprint()
                assert worker.member.state == pb.JoinResponse.STATE_OPENER
                assert worker.member.job.plan_fingerprint == fingerprint


def test_the_example_of_the_specification() -> None:
    assert Plan(PAGE, 2).fingerprint() == "08d7867544ab36b4d8416bc44df50352c4e4e4c82d16be8a1ac0fbd9b72f3d4d"


def test_parameters_of_several_blocks_travel_in_several_chunks() -> None:
    """Each element gets its own gradient, so that one in a wrong place would show."""
    generator = np.random.default_rng(3)
    drawn = {p.name: generator.integers(0, 2, tuple(p.shape)) for p in PAGE}
    initial = {name: array + np.arange(array.size).reshape(array.shape) % 2 for name, array in drawn.items()}
    step = {name: np.arange(array.size).reshape(array.shape) % 1024 for name, array in drawn.items()}

    def gradient(values: Values, batch: int, settings: job_pb2.Settings) -> tuple[Values, int]:
        seen.append(values)
        return step, 1

    seen: list[Values] = []
    model = Model(job_pb2.JobSpec(model="blocks", parameters=PAGE), initial, gradient)
    with LocalCluster(2, chunk_bytes=4096) as cluster:
        trained = train(cluster.addresses, stated(learning_rate=0.5, steps=4), model)
        ended = cluster.wait_ended()
    assert (len(trained.worker.batches), trained.worker.member.chunk_bytes) == (4, 4096)
    for count, values in enumerate([*seen, trained.values]):
        for p in PAGE:
            first = initial[p.name].astype(values[p.name].dtype)
            change = -0.5 * step[p.name] if p.name in {"table", "bias"} else step[p.name] if p.name == "mean" else 0
            np.testing.assert_array_equal(values[p.name], first + count * change, err_msg=f"{p.name} of step {count}")
    assert ended == [None, None]
