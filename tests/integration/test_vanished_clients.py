"""Clients that vanish or are quiet for long: neither costs the shard anything, nor anybody their place."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest
from fuzz_bed import Resources, said_by
from half_a_call import HalfCalls
from history import wait_for
from light_worker import constant, run_worker, scalar
from local_cluster import LocalCluster
from raw_worker import RawWorker, push

from grpc_ps.client import PSClient
from grpc_ps.client.channel import close_channel
from grpc_ps.client.shared import channel_options
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.protos.control_pb2 import StatusRequest
from grpc_ps.protos.control_pb2_grpc import ControlStub
from grpc_ps.psserver import server
from grpc_ps.psserver.lead.limits import Limits

TIMES = 20
AT_ONCE = 4
CHUNK = 1 << 16
# Larger than what a connection takes that nobody reads from.
ELEMENTS = 1 << 20
SPEC = ParameterSpec(name="w", shape=(ELEMENTS,), dtype="float32")
EXACT = {"learning_rate": 2.0**-10}


def half_a_push(worker: RawWorker, file: Path) -> str:
    """Writes down the first half of a push of a member; the name of the file."""
    image = np.ones(ELEMENTS, "<f4").tobytes()
    messages = push(worker.header(1, len(image)), image, CHUNK)
    half = [worker.attach_message(), *messages[: len(messages) // 2]]
    file.write_text("\n".join(message.SerializeToString().hex() for message in half))
    return str(file)


def test_b44_clients_that_are_killed_in_the_middle_leave_nothing(tmp_path: Path) -> None:
    """Fault B44: kill -9 in the middle of a pull and of a push, twenty times each, several at once."""
    # The members beat now and then only: a busy machine must not take them for lost.
    limits = Limits(lease=60.0)
    with (
        LocalCluster(1, presets=EXACT, chunk_bytes=CHUNK, threads=2, limits=limits) as cluster,
        ExitStack() as stack,
    ):
        run_worker(cluster.addresses, [SPEC], constant(1.0), pushes=1)
        workers = [stack.enter_context(RawWorker(cluster.addresses)) for _ in range(AT_ONCE)]
        for worker in workers:
            worker.join([SPEC])
        calls = [stack.enter_context(HalfCalls()) for _ in workers]
        files = [half_a_push(worker, tmp_path / str(number)) for number, worker in enumerate(workers)]

        def kill(number: int, times: int) -> None:
            for _ in range(times):
                for words in (("pull", cluster.addresses), ("push", cluster.addresses, files[number])):
                    calls[number].begin(*words)
                    calls[number].kill()
                workers[number].beat()

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(kill, range(AT_ONCE), [1] * AT_ONCE))
            cluster.wait_staged([0])
            before = Resources()
            list(pool.map(kill, range(AT_ONCE), [TIMES // AT_ONCE] * AT_ONCE))
            cluster.wait_staged([0])
            Resources.settled(
                lambda now: now.threads <= before.threads + 5 and now.descriptors <= before.descriptors + 5,
                f"threads {before.threads}, descriptors {before.descriptors}",
            )
        for worker in workers:
            worker.leave()
        with grpc.insecure_channel(cluster.addresses) as channel:
            assert not ControlStub(channel).Status(StatusRequest(), timeout=20).workers
        done = run_worker(cluster.addresses, [SPEC], constant(1.0), pushes=20)
        assert dict(done.outcomes) == {"APPLIED": 20}
        assert np.unique(done.parameters["w"]).tolist() == [-21 / 1024]


def test_a_reader_that_takes_nothing_is_cut_off() -> None:
    """Else it would hold a snapshot for as long as it likes, and the next one another."""
    # Many times what the connection's buffers take.
    spec = ParameterSpec(name="w", shape=(16 * ELEMENTS,), dtype="float32")
    with LocalCluster(1, presets=EXACT, limits=Limits(call=4.0)) as cluster:
        run_worker(cluster.addresses, [spec], constant(1.0), pushes=1)
        with grpc.insecure_channel(cluster.addresses) as channel:
            call = channel.unary_stream("/grpc_ps.v1.ParameterServer/Pull")(b"", timeout=20)
            next(call)
            # It takes no more. What the shard has sent before waits for it, and then comes the end.
            held = cluster.servers[0]._replay.pins
            wait_for(lambda: len(held) == 0, "the snapshot to be let go of")
            with pytest.raises(grpc.RpcError) as cut:
                list(call)
            assert said_by(cut.value) == (grpc.StatusCode.UNAVAILABLE, "LOST", "the caller took nothing for 4 s")
        with PSClient(cluster.addresses, timeout=20.0) as client:
            assert client.pull().global_step == 1


def test_b60_an_idle_shard_and_a_long_step_outlive_every_timer() -> None:
    """Fault B60: the lead's times as short as a busy machine allows, or shorter where nobody beats."""
    limits = Limits(lease=5.0, link=0.1, start=5.0, rejoin=0.6, pin=0.3)
    longest = 1.2 * max(limits.start, limits.lease)
    quiet = threading.Event()
    with LocalCluster(1, presets={**EXACT, "mode": "sync", "workers": 1}, limits=limits) as cluster:
        # There is no event to wait for: that nothing happens is what is tested.
        assert not quiet.wait(longest)
        with PSClient(cluster.addresses, timeout=20.0) as client:
            session = client.join("test", [scalar()])
            session.open({"w": np.zeros((), np.float32)})
            session.begin()
            assert not quiet.wait(longest)
            assert str(client.push({"w": np.ones((), np.float32)}, 1).outcome) == "APPLIED"
            assert [it.incarnation for it in client.status().workers] == [session.incarnation]


def scaled(options: channel_options.Options) -> channel_options.Options:
    """The same with every time from ping to ping a hundredth; an answer has its time: it may come late."""
    return tuple(
        (name, value // 100 if isinstance(value, int) and ("keepalive_time_" in name or "interval" in name) else value)
        for name, value in options
    )


def test_b66_both_ends_agree_on_pings() -> None:
    """Fault B66: a server permits at least what clients do, with calls and without."""
    client, shard = dict(channel_options.CLIENT_OPTIONS), dict(channel_options.SERVER_OPTIONS)
    rate = int(client["grpc.keepalive_time_ms"])
    for name in ("min_recv_ping_interval_without_data_ms", "min_ping_interval_without_data_ms"):
        assert int(shard[f"grpc.http2.{name}"]) < rate
    assert shard["grpc.keepalive_permit_without_calls"] == client["grpc.keepalive_permit_without_calls"] == 1
    assert shard["grpc.http2.max_ping_strikes"] == 0


@pytest.mark.parametrize("attached", [True, False], ids=["in-a-step", "without-a-call"])
def test_b66_a_quiet_connection_is_kept(monkeypatch: pytest.MonkeyPatch, attached: bool) -> None:
    """Fault B66: pings a hundred times as often; five of them go by, and the connection is still the first one."""
    monkeypatch.setattr(server, "SERVER_OPTIONS", scaled(channel_options.SERVER_OPTIONS))
    with LocalCluster(1, presets=EXACT) as cluster:
        run_worker(cluster.addresses, [scalar()], constant(1.0), pushes=1)
        with RawWorker(cluster.addresses) as worker:
            worker._channel.close()
            worker._channel = grpc.insecure_channel(cluster.addresses, options=scaled(channel_options.CLIENT_OPTIONS))
            worker.stub = type(worker.stub)(worker._channel)
            states: list[grpc.ChannelConnectivity] = []
            watch = states.append
            worker._channel.subscribe(watch)
            worker.join([scalar()])
            stream = worker.attach() if attached else None
            wait_for(lambda: grpc.ChannelConnectivity.READY in states, "the connection")
            seen = len(states)
            # Five times what scaled clients wait from ping to ping.
            assert not threading.Event().wait(5 * channel_options.KEEPALIVE_MS / 100 / 1000)
            worker.beat()
            assert states[seen:] == []
            if stream is not None:
                stream.send(worker.ask(0))
                assert stream.answer()[0].HasField("release")
                stream.cancel()
            worker.leave()
            worker._channel.unsubscribe(watch)
            close_channel(worker._channel)
