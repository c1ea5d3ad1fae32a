"""Pushes that are decided before all of them has arrived: dropped on every shard, and the next one counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import grpc
import numpy as np
import pytest
from history import wait_for
from light_worker import final_values
from local_cluster import LocalCluster
from raw_bed import UNHURRIED
from raw_worker import RawStream, RawWorker, floats, push

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.protos.parameter_server_pb2 import Answer, Outcome, PushHeader, PushPullRequest
from grpc_ps.psserver.part import Part

CHUNK = 1024
SPECS = [ParameterSpec(name=name, shape=(600,), dtype="float32") for name in "vw"]
# Each shard has one of the two: 2432 bytes, three chunks.
SIZE = 2432
ONE_AND_A_SPARE = {"mode": "sync", "workers": 1, "backup": 1, "learning_rate": 1.0}


class Member:
    """A worker of two shards by hand; what it sends may stop anywhere."""

    def __init__(self, cluster: LocalCluster, stack: ExitStack) -> None:
        self.ends = [stack.enter_context(RawWorker(server.address)) for server in cluster.servers]
        self.streams: list[RawStream] = []
        self.sequence = 0
        self.batch = self.step = 0

    def join(self) -> None:
        joined = self.ends[0].join(SPECS, shards=2)
        for end in self.ends:
            end.joined = joined

    def attach(self, opening: bool = False) -> list[int]:
        """Attaches everywhere; returns what each shard holds."""
        job = self.ends[0].job if opening else None
        self.streams = [end.open_stream().send(end.attach_message(job)) for end in self.ends]
        return [stream.read().attached.whole_sequence for stream in self.streams]

    def messages(
        self, value: float, sequence: int, *, chunk_bytes: int = CHUNK, opening: bool = False
    ) -> list[PushPullRequest]:
        header = self.ends[0].header(sequence, SIZE, batch=self.batch, step=self.step)
        if opening:
            header.kind = PushHeader.KIND_VALUES
        return push(header, floats(600, value), chunk_bytes)

    def push(self, value: float, parts: slice = slice(None), **how: int) -> None:
        """Sends some messages of the next push to both shards."""
        self.sequence += 1
        for stream in self.streams:
            stream.send(*self.messages(value, self.sequence, **how)[parts])

    def ask(self) -> None:
        self.streams[0].send(self.ends[0].ask(self.sequence))

    def answer(self) -> Answer:
        """The next answer, which must be the same from both shards, with one step's values."""
        (answer, image), (other, other_image) = [stream.answer() for stream in self.streams]
        assert (answer, image) == (other, other_image)
        if answer.HasField("release"):
            self.batch, self.step = answer.release.batch, answer.global_step
            assert image == floats(600, 0.0 - self.step)
        return answer

    def cancel(self) -> None:
        for stream in self.streams:
            stream.cancel()


@pytest.fixture(autouse=True)
def _nothing_is_done_with_what_was_dropped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A part that is dropped may neither be written to, for its memory is another's, nor reported."""
    wrong: list[str] = []

    def watched(name: str) -> None:
        real = getattr(Part, name)

        def method(part: Part, *args: object) -> object:
            if part.dropped:
                wrong.append(f"{name} of {part}")
            return real(part, *args)

        monkeypatch.setattr(Part, name, method)

    watched("write")
    watched("finish")
    yield
    assert wrong == []


@contextmanager
def two_workers(**presets: object) -> Iterator[tuple[LocalCluster, Member, Member]]:
    """Rounds of one gradient, and two workers that hold a number for step 0."""
    with ExitStack() as stack:
        cluster = stack.enter_context(
            LocalCluster(2, presets={**ONE_AND_A_SPARE, **presets}, limits=UNHURRIED, chunk_bytes=CHUNK)
        )
        fast, slow = Member(cluster, stack), Member(cluster, stack)
        fast.join()
        fast.attach(opening=True)
        fast.sequence = 1
        for stream in fast.streams:
            stream.send(*fast.messages(0.0, 1, opening=True))
        assert fast.answer().release.batch == 0
        slow.join()
        slow.attach()
        slow.ask()
        assert slow.answer().release.batch == 1
        yield cluster, fast, slow


def wait_received(cluster: LocalCluster, expected: int) -> None:
    """Waits until each shard has so many bytes of the slow worker's push."""

    async def received() -> list[int]:
        staging = [server._replay.staging for server in cluster.servers]
        parts = [place.part for one in staging for (worker, _), place in one._places.items() if worker == 1]
        return [part._received for part in parts if part is not None]

    wait_for(lambda: cluster.call(received()) == [expected] * 2, f"{expected} bytes on each shard")


def close_round(fast: Member) -> None:
    fast.push(1.0)
    answer = fast.answer()
    assert answer.result.outcome == Outcome.OUTCOME_APPLIED


def check_late(answer: Answer, sequence: int, repeated: bool = False) -> None:
    result = answer.result
    assert (result.outcome, result.sequence, result.repeated) == (Outcome.OUTCOME_LATE, sequence, repeated)
    assert answer.HasField("release")


def check_next_push(cluster: LocalCluster, slow: Member, steps: int) -> None:
    slow.push(1.0)
    assert slow.answer().result.outcome == Outcome.OUTCOME_APPLIED
    step, values = final_values(cluster.addresses)
    assert (step, np.unique([*values["v"], *values["w"]]).tolist()) == (steps, [-float(steps)])


@pytest.mark.parametrize("sent", [1, 2])
@pytest.mark.parametrize("goes_on", [False, True], ids=["left-unfinished", "finished"])
def test_late_in_the_middle_of_a_push(sent: int, goes_on: bool) -> None:
    """The answer comes without the rest; whether that still comes or not makes no difference."""
    with two_workers() as (cluster, fast, slow):
        before = cluster.staged_bytes()
        slow.push(50.0, slice(sent))
        wait_received(cluster, sent * CHUNK)
        close_round(fast)
        rest = slow.messages(50.0, slow.sequence)[sent:]
        check_late(slow.answer(), slow.sequence)
        assert cluster.staged_bytes() == before
        if goes_on:
            for stream in slow.streams:
                stream.send(*rest)
        check_next_push(cluster, slow, 2)
        assert cluster.staged_bytes() == before


@pytest.mark.parametrize("chunk_bytes", [CHUNK, 4096], ids=["three-messages", "one-message"])
def test_late_at_the_header(chunk_bytes: int) -> None:
    """The round is closed before anything is sent; the whole push may be in the message that is found to be late."""
    with two_workers() as (cluster, fast, slow):
        for server in cluster.servers:
            server._replay.staging._chunk_bytes = 4096
        close_round(fast)
        slow.push(50.0, chunk_bytes=chunk_bytes)
        check_late(slow.answer(), slow.sequence)
        check_next_push(cluster, slow, 2)


def test_late_on_a_shard_that_has_seen_nothing_of_the_push() -> None:
    """Shard 1 is told before the header comes, and skips what comes then."""
    with two_workers() as (cluster, fast, slow):
        close_round(fast)
        slow.sequence += 1
        messages = slow.messages(50.0, slow.sequence)
        slow.streams[0].send(messages[0])
        check_late(slow.answer(), slow.sequence)
        slow.streams[1].send(*messages)
        check_next_push(cluster, slow, 2)


def test_late_while_the_streams_are_broken() -> None:
    """Who attaches anew is told that the push is decided, and gets the outcome again."""
    with two_workers() as (cluster, fast, slow):
        slow.push(50.0, slice(2))
        wait_received(cluster, 2 * CHUNK)
        slow.cancel()
        cluster.wait_staged([SIZE, SIZE])
        close_round(fast)
        assert slow.attach() == [1, 1]
        slow.ask()
        check_late(slow.answer(), 1, repeated=True)
        check_next_push(cluster, slow, 2)


def test_a_push_that_was_cut_off_and_comes_again_is_late_at_its_header() -> None:
    with two_workers() as (cluster, fast, slow):
        slow.sequence += 1
        messages = slow.messages(50.0, 1)
        slow.streams[1].send(*messages[:2])
        slow.cancel()
        cluster.wait_staged([SIZE, SIZE])
        close_round(fast)
        assert slow.attach() == [0, 0]
        for stream in slow.streams:
            stream.send(messages[0])
        check_late(slow.answer(), 1)
        check_next_push(cluster, slow, 2)


def test_late_whole_on_one_shard_alone() -> None:
    with two_workers() as (cluster, fast, slow):
        slow.sequence += 1
        messages = slow.messages(50.0, 1)
        slow.streams[0].send(*messages[:2])
        slow.streams[1].send(*messages)
        wait_whole(cluster)
        close_round(fast)
        check_late(slow.answer(), 1)
        check_next_push(cluster, slow, 2)


def wait_whole(cluster: LocalCluster) -> None:
    """Waits until shard 1 has the slow worker's push whole."""

    async def whole() -> bool:
        return bool(cluster.servers[1]._replay.staging.all_whole())

    wait_for(lambda: cluster.call(whole()), "the push on shard 1")


def test_the_job_ends_in_the_middle_of_a_push() -> None:
    with two_workers(steps=1) as (cluster, fast, slow):
        slow.push(50.0, slice(2))
        wait_received(cluster, 2 * CHUNK)
        fast.push(1.0)
        assert [fast.answer().HasField("done"), slow.answer().HasField("done")] == [True, True]
        step, values = final_values(cluster.addresses)
        assert (step, np.unique(values["w"]).tolist()) == (1, [-1.0])
        for member in (fast, slow):
            member.cancel()
        cluster.wait_staged([0, 0])
        for member in (fast, slow):
            member.ends[0].leave()
        assert cluster.wait_ended() == [None, None]


@pytest.mark.parametrize("sent", [1, 3])
def test_a_worker_that_is_dismissed_in_the_middle_of_a_push(sent: int) -> None:
    """Also where its push is whole on this shard and not on the other."""
    with two_workers() as (cluster, fast, slow):
        slow.sequence += 1
        messages = slow.messages(50.0, 1)
        slow.streams[0].send(messages[0])
        slow.streams[1].send(*messages[:sent])
        if sent == 3:
            wait_whole(cluster)
        slow.ends[0].leave()
        slow.streams[0].send(messages[1])
        for stream in slow.streams:
            assert stream.refusal()[0] is grpc.StatusCode.OK
        cluster.wait_staged([SIZE, SIZE])
        close_round(fast)
        slow.join()
        assert slow.attach() == [0, 0]
        slow.sequence = 0
        slow.ask()
        assert slow.answer().global_step == 1
        check_next_push(cluster, slow, 2)
