"""A follower that the lead has let in, and that says anything: the lead's decisions stand it."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import fuzzing
import grpc
import pytest
from fake_follower import FOLLOW, FakeFollower, LeadAlone
from fuzz_bed import METHODS, is_typed
from google.protobuf.message import Message
from raw_worker import RawStream, RawWorker, floats, push

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.protos.coordination_pb2 import FollowRequest, Overflow, Reduced, Saved, TableHeld, Unable, Whole
from grpc_ps.protos.parameter_server_pb2 import Outcome, PushHeader
from grpc_ps.psserver import reports
from grpc_ps.psserver.lead.limits import Limits

SEED = int(os.environ.get("GRPC_PS_SEED", "4"))
CHUNK = 4096
# One on each shard: 2432 bytes with the padding.
SPECS = [ParameterSpec(name=name, shape=(20, 30), dtype="float32") for name in ("left", "right")]
SIZE = 2432
# The worker does not beat, and the link is made anew for each case.
UNHURRIED = Limits(lease=60.0, link=60.0)
INVALID = grpc.StatusCode.INVALID_ARGUMENT


class Pair:
    """The lead, a follower that is the test's, and a worker of theirs that has opened the job."""

    def __init__(self, cluster: LeadAlone, follower: FakeFollower, worker: RawWorker) -> None:
        self.cluster = cluster
        self.follower = follower
        self.worker = worker
        self.sequence = 0
        self.header = PushHeader()
        self.join()
        values = worker.header(1, SIZE)
        values.kind = PushHeader.KIND_VALUES
        self._push(values, worker.attach(worker.job))

    def join(self) -> None:
        """Begins another life of the worker."""
        link = self.follower.connect()
        self.worker.join(SPECS, shards=2)
        self.sequence = 0
        link.cancel()

    def _push(self, header: PushHeader, stream: RawStream) -> int:
        """Makes a push whole on both shards; the batch that is next."""
        link = self.follower.connect()
        stream.send(*push(header, floats(600, 1.0), CHUNK))
        link.send(FollowRequest(whole=Whole(header=header)))
        answer, _ = stream.answer()
        assert answer.result.outcome == Outcome.OUTCOME_APPLIED
        self.sequence = header.sequence
        self.header = self.worker.header(self.sequence + 1, SIZE, batch=answer.release.batch, step=answer.global_step)
        stream.cancel()
        link.cancel()
        return answer.release.batch

    def step(self) -> None:
        """An honest step, of a new life of the worker."""
        self.worker.leave()
        self.follower.position = self.cluster.position()
        self.join()
        stream = self.worker.attach().send(self.worker.ask(0))
        answer, _ = stream.answer()
        header = self.worker.header(1, SIZE, batch=answer.release.batch, step=answer.global_step)
        self._push(header, stream)

    def good(self) -> list[bytes]:
        """What an honest follower may say."""
        parts = [
            FollowRequest(whole=Whole(header=self.header)),
            FollowRequest(whole=Whole(header=self.header, non_finite="right", squares=[1.0])),
            FollowRequest(reduced=Reduced(position=3, squares=[0.5])),
            FollowRequest(acknowledged=1),
            FollowRequest(unpinned=7),
        ]
        return [part.SerializeToString() for part in parts]


@contextmanager
def opened_pair() -> Iterator[Pair]:
    presets = {"learning_rate": 2.0**-10, "global_clip_norm": 1.0}
    with (
        LeadAlone(presets=presets, limits=UNHURRIED, chunk_bytes=CHUNK) as cluster,
        RawWorker(cluster.addresses) as worker,
    ):
        follower = FakeFollower(cluster.addresses, CHUNK)
        try:
            yield Pair(cluster, follower, worker)
        finally:
            follower.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with opened_pair() as opened:
        yield opened


def anything(rng: random.Random, pair: Pair) -> list[bytes]:
    """Some messages, often with a header of the worker's next push in them."""
    known: dict[str, Message] = {
        PushHeader.DESCRIPTOR.full_name: pair.header,
        pair.header.id.DESCRIPTOR.full_name: pair.header.id,
    }
    kind = METHODS[FOLLOW].input_type
    made = [fuzzing.case(rng, kind, pair.good(), known) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.3:
        return [data for data in made if not ends(data)]
    return [data for message in made for data in plausible(message)]


def ends(data: bytes) -> bool:
    """Whether it says that the shard was told to end, or has to: with that the job ends, as it should."""
    message = fuzzing.parsed(METHODS[FOLLOW].input_type, data)
    return isinstance(message, FollowRequest) and (message.leaving or message.HasField("unable"))


def plausible(data: bytes) -> list[bytes]:
    """The message without what is refused at first sight, so that the rest of it reaches the decisions."""
    message = fuzzing.parsed(METHODS[FOLLOW].input_type, data)
    if not isinstance(message, FollowRequest):
        return []
    message.ClearField("hello")
    message.ClearField("overflow")
    message.ClearField("leaving")
    message.ClearField("unable")
    del message.tables[2:]
    for table in message.tables:
        table.name = "left"
    message.acknowledged %= 2
    if message.whole.non_finite:
        message.whole.non_finite = "right"
    return [message.SerializeToString()]


def attack(pair: Pair, cases: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for number in range(cases):
        rng = random.Random(f"{SEED} {number}")
        if number % 20 == 0:
            pair.step()
        pair.follower.position = pair.cluster.position()
        link = pair.follower.open() if rng.random() < 0.1 else pair.follower.connect()
        sent = anything(rng, pair)
        link.send(*sent)
        if rng.random() < 0.1:
            link.cancel()
        else:
            link.end()
        said = link.refusal()
        assert is_typed(said, max(map(len, sent), default=0)), f"seed {SEED}, case {number}: {said}"
        assert pair.cluster.alive(), f"seed {SEED}, case {number}: the job ended for {sent}"
        seen[said[1] or said[0].name] += 1
    pair.step()
    return seen


def test_anything_from_a_follower_is_refused_with_a_reason(pair: Pair) -> None:
    print(f"seed {SEED}: {dict(attack(pair, 1000))}")


@pytest.mark.slow
def test_more_of_anything_from_a_follower_is_refused_with_a_reason(pair: Pair) -> None:
    print(f"seed {SEED}: {dict(attack(pair, 10_000))}")


LIES: dict[str, tuple[Callable[[Pair], FollowRequest], str]] = {
    "hello-again": (lambda pair: pair.follower.hello(), "`hello` comes first on a link, and once"),
    "beyond-the-log": (
        lambda pair: FollowRequest(acknowledged=2**64 - 1),
        "entry 18446744073709551615 is acknowledged",
    ),
    "no-such-overflow": (
        lambda pair: FollowRequest(overflow=Overflow(parameter="x" * 100_000, global_step=1)),
        "`overflow`: the job has no parameter 'xxx",
    ),
    "no-such-update": (
        lambda pair: FollowRequest(overflow=Overflow(parameter="left", global_step=2**63)),
        "`overflow`: there is no update to step 9223372036854775808",
    ),
    "no-checkpoint": (
        lambda pair: FollowRequest(saved=Saved(folder=".saving", non_finite="left")),
        "`saved`: this job has no checkpoints",
    ),
    "nothing-not-finite": (
        lambda pair: FollowRequest(whole=Whole(header=pair.header, non_finite="nobody")),
        "`whole`: the job has no parameter 'nobody'",
    ),
    "another-exit-code": (
        lambda pair: FollowRequest(unable=Unable(exit_code=0, reason="done")),
        "`unable`: has exit code 0 and a reason of 4 characters",
    ),
    "no-such-table": (
        lambda pair: FollowRequest(tables=[TableHeld(name="nobody", rows=1)]),
        "`tables`: has a table that the job does not have",
    ),
    "too-many-squares": (
        lambda pair: FollowRequest(whole=Whole(header=pair.header, squares=[1.0] * 9)),
        "shard 1 reports 9 sums of squares, it has 1 blocks",
    ),
}


@pytest.mark.parametrize(("lie", "says"), LIES.values(), ids=LIES)
def test_what_no_follower_can_have_to_say_is_refused(
    pair: Pair, lie: Callable[[Pair], FollowRequest], says: str
) -> None:
    link = pair.follower.connect()
    link.send(lie(pair))
    status, reason, text = link.refusal()
    assert (status, reason) == (INVALID, "INVALID_PUSH")
    assert says in text
    assert pair.cluster.alive()
    pair.step()


def test_a_follower_that_acknowledges_nothing_is_cut_off(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is kept for it; it takes all entries and says nothing."""
    monkeypatch.setattr(reports, "MAX_UNACKNOWLEDGED", 100)
    stream = pair.worker.attach()
    link = pair.follower.connect()
    # Each question is answered by an entry of its own.
    for _ in range(200):
        stream.send(pair.worker.ask(pair.sequence))
        stream.answer()
    status, reason, text = link.refusal()
    assert (status, reason) == (INVALID, "INVALID_PUSH")
    assert "shard 1 has acknowledged nothing since entry 0" in text
    assert pair.cluster.alive()


def test_a_link_with_an_endless_address_is_refused(pair: Pair) -> None:
    link = pair.follower.open()
    link.send(pair.follower.hello(address="x" * 100_000))
    assert link.refusal()[:2] == (INVALID, "USAGE")
