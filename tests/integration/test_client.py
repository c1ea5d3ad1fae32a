"""The client against real shards: joining, steps over several shards, broken links, reading."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from flaky_link import FlakyLink
from local_cluster import LocalCluster
from ports import held_port, kept_port

from grpc_ps.client import PSClient, Reply, TrainingSession, joining
from grpc_ps.client.shared.blocks import FLOATING, ITEM_BYTES, ParameterSpec
from grpc_ps.client.shared.errors import Mismatch, NotLead, PeerUnreachable, PsError, UsageError
from grpc_ps.client.shared.image import numpy_dtype

LR = 2.0**-10
EXACT = {"optimizer": "sgd", "learning_rate": LR, "batch_size": 1}
SMALL = [ParameterSpec(name="w", shape=(784, 10), dtype="float32"), ParameterSpec(name="b", shape=(), dtype="float32")]
# Several chunks of 64 KiB on each of two shards.
LARGE = [ParameterSpec(name="w", shape=(500, 1000), dtype="float32")]


class FirstOfTwo(LocalCluster):
    """Shard 0 of two; the other one never comes."""

    def __enter__(self) -> LocalCluster:
        self._thread.start()
        self.call(self._start(0))
        return self


def zeros(specs: list[ParameterSpec]) -> dict[str, np.ndarray]:
    return {spec.name: np.zeros(spec.shape, numpy_dtype(spec.dtype)) for spec in specs}


def ones(specs: list[ParameterSpec]) -> dict[str, np.ndarray]:
    return {spec.name: np.ones(spec.shape, numpy_dtype(spec.dtype)) for spec in specs}


def begin(client: PSClient, specs: list[ParameterSpec], **join: Any) -> tuple[TrainingSession, Reply]:
    """Joins, opens with zeros if it is the first, and returns the first release."""
    session = client.join("test", specs, **join)
    if session.opener:
        session.open(zeros(specs))
    return session, session.begin()


def check_one_step(session: TrainingSession, step: int) -> None:
    """With ones as gradients every element is -step * LR: a mixture of steps would show."""
    for array in session.parameters.values():
        assert np.array_equal(np.unique(array), [np.float32(-step * LR)])


@contextmanager
def linked(presets: dict[str, object], **config: int) -> Iterator[tuple[str, list[FlakyLink]]]:
    """Starts two shards with a link before each that can be cut."""
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(2, presets=presets, **config))
        links = [stack.enter_context(FlakyLink(server.address)) for server in cluster.servers]
        yield ",".join(link.address for link in links), links


@pytest.mark.parametrize(("shards", "chunk_bytes"), [(1, 1 << 20), (2, 1 << 12), (5, 64)])
def test_steps_are_exact_whatever_the_shards(shards: int, chunk_bytes: int) -> None:
    with LocalCluster(shards, presets={**EXACT, "steps": 20}, chunk_bytes=chunk_bytes) as cluster:
        with PSClient(cluster.addresses, timeout=20) as client:
            session, reply = begin(client, SMALL)
            for step in range(20):
                assert (reply.global_step, reply.batch, reply.done) == (step, step, False)
                check_one_step(session, step)
                reply = client.push(ones(SMALL))
                assert (reply.outcome, reply.staleness, reply.repeated) == ("APPLIED", 0, False)
            assert (reply.done, reply.exit_code, reply.global_step, reply.batch) == (True, 0, 20, None)
            pulled = client.pull()
            assert pulled.global_step == 20
            assert pulled.values["b"] == -20 * LR
        cluster.wait_ended()


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_b17_values_are_read_as_they_were_sent(dtype: str) -> None:
    """Fault B17: what the opener sends is what it and a reader get, in type, shape and bytes."""
    rng = np.random.default_rng(0)
    shapes = ((), (0,), (1,), (4, 2), (2, 0, 3), (3, 1, 5))
    trainable = dtype in FLOATING
    specs = [ParameterSpec(name=f"w{shape}", shape=shape, dtype=dtype, trainable=trainable) for shape in shapes]
    values = {spec.name: np.asarray(rng.integers(0, 2, spec.shape)).astype(numpy_dtype(dtype)) for spec in specs}
    with LocalCluster(2, presets=EXACT) as cluster, PSClient(cluster.addresses, timeout=20) as client:
        session = client.join("test", specs)
        session.open(values)
        assert session.begin().batch == 0
        for received in (session.parameters, client.pull().values):
            for name, value in values.items():
                array = received[name]
                assert (array.dtype, array.shape, array.tobytes()) == (value.dtype, value.shape, value.tobytes())


def test_some_parameters_can_be_read() -> None:
    with LocalCluster(2, presets=EXACT) as cluster, PSClient(cluster.addresses, timeout=20) as client:
        begin(client, SMALL)
        assert client.push(ones(SMALL)).outcome == "APPLIED"
        pulled = client.pull(["b"])
        assert (pulled.global_step, pulled.values) == (1, {"b": -LR})
        with pytest.raises(UsageError, match="no such parameter: v, x"):
            client.pull(["x", "b", "v"])


def test_status_tells_of_shards_and_workers() -> None:
    with LocalCluster(2, presets={**EXACT, "steps": 3}) as cluster, PSClient(cluster.addresses, timeout=20) as client:
        assert client.status().phase == "empty"
        session, _ = begin(client, SMALL)
        session.note(7, 0.25)
        client.push(ones(SMALL))
        now = client.status()
        assert (now.phase, now.model, now.global_step, now.opened) == ("running", "test", 1, 1)
        assert (now.settings["steps"], now.settings["optimizer"]) == (3, "sgd")
        assert [(shard.shard, shard.address, shard.connected) for shard in now.shards] == [
            (number, server.address, True) for number, server in enumerate(cluster.servers)
        ]
        assert [(shard.blocks, shard.value_bytes) for shard in now.shards] == [(1, 4 * 7840), (1, 4)]
        (worker,) = now.workers
        assert (worker.worker, worker.applied, worker.batch) == (0, 1, 1)
        assert now.to_dict()["workers"][0]["name"] == worker.name
        session.leave()
        assert client.status().workers == ()


def test_watch_ends_with_the_job() -> None:
    with LocalCluster(1, presets=EXACT) as cluster, PSClient(cluster.addresses, timeout=20) as client:
        begin(client, SMALL)
        states = []
        for now in client.watch(0.01):
            states.append(now.phase)
            if len(states) == 1:
                assert client.stop() == 0
        assert (states[0], states[-1]) == ("running", "stopped")


def test_stop_ends_a_wait() -> None:
    with LocalCluster(2, presets={**EXACT, "mode": "sync", "workers": 2}) as cluster:
        replies: list[Reply] = []
        waiting = threading.Event()

        def work() -> None:
            with PSClient(cluster.addresses, timeout=20) as client:
                session = client.join("test", SMALL)
                session.open(zeros(SMALL))
                waiting.set()
                replies.append(session.begin())

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        assert waiting.wait(20)
        with PSClient(cluster.addresses) as client:
            deadline = time.monotonic() + 20
            for now in client.watch(0.01):
                assert time.monotonic() < deadline
                if now.phase == "running":
                    break
            client.stop()
        worker.join(20)
        assert [(reply.done, reply.exit_code) for reply in replies] == [(True, 0)]
        cluster.wait_ended()


def test_b02_exactly_the_unreachable_are_named() -> None:
    with held_port() as port:
        nobody = f"127.0.0.1:{port}"
        says = rf"^cannot reach {nobody} \(waited {{}} s\)$"
        with PSClient(nobody, timeout=1) as client, pytest.raises(PeerUnreachable, match=says.format(1)):
            client.join("test", SMALL)
        with FirstOfTwo(2) as cluster, PSClient(f"{cluster.addresses},{nobody}", timeout=4) as client:
            assert client.status().phase == "empty", "the one that is there is connected"
            with pytest.raises(PeerUnreachable, match=says.format(4)):
                client.join("test", SMALL)


def test_what_nobody_answers_is_one_short_traceback() -> None:
    with held_port() as port, PSClient(f"127.0.0.1:{port}", timeout=1) as client:
        for ask in (client.pull, client.status):
            with pytest.raises(PeerUnreachable, match="is the job over, or the address wrong") as failed:
                ask()
            assert "".join(traceback.format_exception(failed.value)).count("Traceback") == 1


def test_b01_late_server_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "SAY_EVERY", 0.1)
    replies: list[Reply] = []
    said: SimpleQueue[str] = SimpleQueue()

    def work() -> None:
        with PSClient(f"127.0.0.1:{port}", timeout=30) as client:
            replies.append(begin(client, SMALL, on_wait=said.put)[1])

    worker = threading.Thread(target=work, daemon=True)
    with kept_port() as port:
        worker.start()
        assert said.get(timeout=20) == f"127.0.0.1:{port} to answer"
        with LocalCluster(1, presets=EXACT, port=port):
            worker.join(30)
    assert [reply.batch for reply in replies] == [0]


def test_b05_waiting_for_a_slow_opener_is_no_failure_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    timeout = 4.0
    monkeypatch.setattr(joining, "SAY_EVERY", timeout + 1)
    with LocalCluster(1, presets=EXACT) as cluster, PSClient(cluster.addresses, timeout=20) as first:
        opener = first.join("test", SMALL)
        assert opener.opener
        replies: list[Reply] = []
        said: SimpleQueue[str] = SimpleQueue()

        def work() -> None:
            with PSClient(cluster.addresses, timeout=timeout) as second:
                replies.append(begin(second, SMALL, on_wait=said.put)[1])

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        # The first word comes after the timeout.
        assert said.get(timeout=20).endswith(" to send the initial values")
        opener.open(zeros(SMALL))
        assert opener.begin().batch == 0
        worker.join(20)
        assert [reply.batch for reply in replies] == [1]


def test_b14_other_model_is_refused_with_both_shapes() -> None:
    with LocalCluster(1, presets=EXACT) as cluster, PSClient(cluster.addresses, timeout=20) as client:
        begin(client, SMALL)
        other = [ParameterSpec(name="w", shape=(784, 20), dtype="float32"), SMALL[1]]
        with PSClient(cluster.addresses, timeout=20) as newcomer, pytest.raises(Mismatch) as caught:
            newcomer.join("test", other)
        assert all(text in str(caught.value) for text in ("w", "784, 10", "784, 20"))


def test_wrong_order_of_shards_is_refused() -> None:
    with LocalCluster(2, presets=EXACT) as cluster:
        wrong = ",".join(reversed(cluster.addresses.split(",")))
        with PSClient(wrong, timeout=20) as client, pytest.raises(NotLead):
            client.join("test", SMALL)


@pytest.mark.usefixtures("leaving_is_heard")
def test_place_is_free_after_leaving() -> None:
    with LocalCluster(1, presets={**EXACT, "max_workers": 1}) as cluster:
        with PSClient(cluster.addresses, timeout=20) as client:
            begin(client, SMALL)
        with PSClient(cluster.addresses, timeout=20) as client:
            session, reply = begin(client, SMALL)
            assert (session.worker, session.opener, reply.batch) == (0, False, 0)
            assert session.incarnation == 2


@pytest.mark.parametrize("to_client", [True, False], ids=["release", "push"])
@pytest.mark.parametrize("shard", [0, 1])
def test_link_that_breaks_in_mid_step_loses_and_repeats_nothing(shard: int, to_client: bool) -> None:
    """Cut at another byte of the exchange in each step: in a push, in a release, between them."""
    steps = 12
    presets = {**EXACT, "steps": steps}
    with linked(presets, chunk_bytes=1 << 16) as (addresses, links), PSClient(addresses, timeout=20) as client:
        session, reply = begin(client, LARGE)
        for step in range(steps):
            check_one_step(session, step)
            links[shard].cut_after(1 + step * 90_000, to_client=to_client)
            reply = client.push(ones(LARGE))
            assert (reply.outcome, reply.global_step) == ("APPLIED", step + 1)
        assert reply.done
        assert links[shard].cuts >= steps - 2
        pulled = client.pull()
        assert np.array_equal(np.unique(pulled.values["w"]), [np.float32(-steps * LR)])


def test_all_links_that_break_between_steps_are_mended() -> None:
    with linked({**EXACT, "steps": 4}) as (addresses, links), PSClient(addresses, timeout=20) as client:
        session, reply = begin(client, SMALL)
        for step in range(4):
            check_one_step(session, step)
            for link in links:
                link.cut()
            reply = client.push(ones(SMALL))
            assert (reply.outcome, reply.global_step) == ("APPLIED", step + 1)
        assert reply.done


def test_lead_that_is_gone_is_not_waited_for_without_end() -> None:
    with ExitStack() as stack:
        with LocalCluster(1, presets=EXACT) as cluster:
            client = stack.enter_context(PSClient(cluster.addresses, timeout=4))
            begin(client, SMALL)
        with pytest.raises(PsError) as caught:
            client.push(ones(SMALL))
        assert caught.value.exit_code == 4
