"""Anything at all on every rpc: refused with a reason, while a good worker trains on the same shard."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator

import grpc
import pytest
from fuzz_bed import METHODS, BadPeer, FuzzBed, Resources, fuzz_bed, is_typed
from history import wait_for

from grpc_ps.client import PSClient

CASES = 400
SLOW_CASES = 10_000
SEED = int(os.environ.get("GRPC_PS_SEED", "4"))
PATHS = sorted(METHODS)
MEMORY = 64 << 20
"""Bytes that the process may grow by: allocator, caches and the test's own lists."""


@pytest.fixture(scope="module")
def bed() -> Iterator[FuzzBed]:
    with fuzz_bed() as opened:
        for path in PATHS:
            # Whatever is made at the first use, is made.
            opened.attack(path, SEED - 1, 20)
        yield opened


def attack(bed: FuzzBed, path: str, cases: int) -> None:
    before = Resources()
    pushes = bed.good.pushes
    seen = bed.attack(path, SEED, cases)
    bed.check()
    print(f"{path}: seed {SEED}, {cases} cases, {dict(seen.most_common())}; {bed.good.pushes - pushes} good pushes")
    assert seen["USAGE"] + seen["INVALID_PUSH"], "nothing was refused for its form"
    after = Resources.settled(
        lambda now: now.threads <= before.threads + 5 and now.descriptors <= before.descriptors + 5,
        f"threads {before.threads}, descriptors {before.descriptors}",
    )
    grown = [after.resident - before.resident]
    while grown[-1] > MEMORY and len(grown) < 3:
        # A leak grows each time; what grows once is a cache, or left by another test of this process.
        before = Resources()
        bed.attack(path, SEED + len(grown), cases)
        grown.append(Resources().resident - before.resident)
    assert grown[-1] <= MEMORY, grown


@pytest.mark.parametrize("path", PATHS)
def test_anything_on_every_rpc_is_refused_with_a_reason(bed: FuzzBed, path: str) -> None:
    attack(bed, path, CASES)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_more_of_anything_on_every_rpc_is_refused_with_a_reason(bed: FuzzBed, path: str) -> None:
    attack(bed, path, SLOW_CASES)


SET, STOP = "/grpc_ps.v1.Control/Set", "/grpc_ps.v1.Control/StopJob"


def test_settings_of_any_kind_leave_a_job_that_can_be_set_right() -> None:
    """What changes a job may: here nobody's training is to stay as it was, but the lead must stand it."""
    with fuzz_bed() as bed, PSClient(bed.cluster.addresses, timeout=20.0) as client:
        peer = BadPeer(bed.cluster.addresses, harmless=False)
        seen: Counter[str] = Counter()
        for number in range(CASES):
            said, size = peer.call(random.Random(f"{SEED} {SET} {number}"), SET)
            assert is_typed(said, size), f"seed {SEED}, case {number}: {said}"
            seen[said[1] or said[0].name] += 1
        print(f"{SET}: seed {SEED}, {dict(seen)}")
        assert {"OK", "MISMATCH", "USAGE"} <= seen.keys()
        # The good worker computes with the rate that it began with.
        client.set(mode="async", paused=False, max_staleness=-1)
        wait_for(lambda: client.status().workers[0].activity != "paused", "the good worker to be at work")
        peer.close()
        with grpc.insecure_channel(bed.cluster.addresses) as channel:
            # Fields that this version does not know are no reason to refuse.
            channel.unary_unary(STOP)(b"\x98\x06\x01", timeout=20)
        assert bed.cluster.wait_ended() == [None]
        bed.good.error = None
