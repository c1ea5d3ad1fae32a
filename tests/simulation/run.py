"""Runs seeds by the million: `python -m simulation.run --events 100000000 --processes 2` in tests/."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context

from simulation.violation import Violation
from simulation.world import World, simulate

BATCH = 50
SAY_EVERY = 10.0


def run_batch(first: int) -> tuple[int, Counter[str]]:
    """Simulates some seeds; returns how many events there were, and what was seen.

    Raises:
        Violation: with the line that reproduces it.
    """
    events, seen = 0, Counter[str]()
    # A seed's objects live as long as the seed.
    gc.disable()
    try:
        for seed in range(first, first + BATCH):
            outcome = simulate(seed, take_apart)
            events += outcome.events
            seen.update(outcome.seen)
    finally:
        gc.enable()
        gc.collect()
    return events, seen


def take_apart(world: World) -> None:
    """Ends the cycles of references that a world consists of, which takes less time than finding them."""
    for worker in world.processes:
        vars(worker.lease).clear()
        vars(worker.sender).clear()
        vars(worker).clear()
    for shard in world.shards:
        vars(shard.door).clear()
        vars(shard.uplink).clear()
        vars(shard).clear()
    for checker in world.checkers.values():
        vars(checker).clear()
    for whole in (world.lead.job, world.lead, world.chaos, world):
        vars(whole).clear()


def many(*, first: int, enough: int, processes: int) -> Counter[str]:
    """Runs seeds from `first` until there are enough events; returns what was seen.

    Raises:
        Violation: of the first seed that fails.
    """
    progress = Progress(enough)
    if processes == 1:
        while progress.events < enough:
            progress.add(*run_batch(first))
            first += BATCH
        return progress.end(first)
    running: set[Future[tuple[int, Counter[str]]]] = set()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        while progress.events < enough:
            while len(running) < 2 * processes:
                running.add(pool.submit(run_batch, first))
                first += BATCH
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                progress.add(*future.result())
        pool.shutdown(cancel_futures=True)
    return progress.end(first)


class Progress:
    """Counts events, and says every ten seconds how far it is."""

    def __init__(self, enough: int) -> None:
        self.events = 0
        self._enough = enough
        self._seen: Counter[str] = Counter()
        self._begin = self._said = time.monotonic()

    def add(self, events: int, seen: Counter[str]) -> None:
        """Some more have happened."""
        self.events += events
        self._seen.update(seen)
        now = time.monotonic()
        if now - self._said > SAY_EVERY:
            self._said = now
            pace = self.events / (now - self._begin)
            print(f"{self.events:,} of {self._enough:,} events, {pace:,.0f} a second", file=sys.stderr, flush=True)

    def end(self, seeds: int) -> Counter[str]:
        """Says what it came to."""
        seconds = time.monotonic() - self._begin
        pace = self.events / seconds
        print(f"{self.events:,} events in {seconds:.1f} s ({pace:,.0f} a second), no violation below seed {seeds}")
        print(", ".join(f"{kind}: {count:,}" for kind, count in sorted(self._seen.items())))
        return self._seen


def main() -> int:
    """Runs until there are enough events, or a seed fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="only this seed")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    try:
        if arguments.seed is not None:
            print(simulate(arguments.seed))
        else:
            many(first=arguments.first, enough=arguments.events, processes=arguments.processes)
    except Violation as violation:
        print(violation, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
