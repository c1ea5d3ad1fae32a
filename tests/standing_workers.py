"""Standing workers without a model: threads that take jobs of the queue and train them with what a function says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType

from light_worker import Gradient, constant, run_worker

from grpc_ps.client import PSClient
from grpc_ps.client.jobs import Assignment, Carried, JobRequest, JobStatus
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import DataError, PeerLost, PeerUnreachable, PsError

DEADLINE = 60.0
BEAT = 0.2

# What a job trains: its parameters and gradients; may raise what makes the process of a real worker fail.
Work = Callable[[JobRequest], tuple[Sequence[ParameterSpec], Gradient]]


def by_name(job: JobRequest) -> tuple[list[ParameterSpec], Gradient]:
    """One parameter with the job's name, and gradients of 1; a job without a name fails, as without its data."""
    if not job.name:
        raise DataError("/data: there is no such folder")
    return [ParameterSpec(name=job.name, shape=(3,), dtype="float32")], constant(-1.0)


class LightStanding(threading.Thread):
    """A standing worker in a thread. It ends with the cluster, or when the `with` does.

    Attributes:
        carried: the jobs that it was given, by their numbers.
        told: the last word of the lead when the cluster ended.
    """

    def __init__(self, addresses: str, work: Work = by_name) -> None:
        super().__init__(daemon=True)
        self.carried: list[int] = []
        self.told: Assignment | None = None
        self.error: BaseException | None = None
        self._addresses = addresses
        self._work = work
        self._left = threading.Event()

    def run(self) -> None:
        try:
            with PSClient(self._addresses) as client:
                self._stand(client)
        except BaseException as error:
            self.error = error

    def _stand(self, client: PSClient) -> None:
        ended: Carried | None = None
        while not self._left.is_set():
            try:
                told = client.jobs.wait(0.2, ended=ended)
            except (PeerUnreachable, PeerLost):
                continue
            ended = None
            if told.closing:
                self.told = told
                break
            if told.job is not None:
                self.carried.append(told.number)
                ended = self._beside(client, told, told.job)
                if self.told is not None:
                    break
        with suppress(PeerUnreachable, PeerLost):
            client.jobs.leave(5.0)

    def _beside(self, client: PSClient, told: Assignment, job: JobRequest) -> Carried:
        """Carries a job out in another thread, and says meanwhile that it does."""
        with ThreadPoolExecutor(1) as pool:
            ending = pool.submit(self._carry_out, told, job)
            while not wait((ending,), BEAT).done:
                with suppress(PeerUnreachable, PeerLost):
                    if self.told is not None:
                        continue
                    heard = client.jobs.wait(0.0, carrying=(told.number, told.run))
                    self.told = heard if heard.closing else self.told
            return ending.result()

    def _carry_out(self, told: Assignment, job: JobRequest) -> Carried:
        try:
            specs, gradient = self._work(job)
            run_worker(
                self._addresses, specs, gradient, run=told.run, stated=job.stated, defaults={"steps": 10}, rejoin=True
            )
        except PsError as error:
            return Carried(number=told.number, run=told.run, exit_code=error.exit_code, reason=str(error))
        return Carried(number=told.number, run=told.run, exit_code=0)

    def __enter__(self) -> LightStanding:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self.join(DEADLINE)
        assert kind or self.error is None, self.error


def until_ended(client: PSClient, number: int, seconds: float = DEADLINE) -> JobStatus:
    """Waits for the end of a job."""
    return until(client, number, lambda job: job.has_ended, seconds)


def until(
    client: PSClient, number: int, condition: Callable[[JobStatus], bool], seconds: float = DEADLINE
) -> JobStatus:
    """Waits until what the lead says of a job makes the condition true; a lead that is gone may come back."""
    deadline = time.monotonic() + seconds
    while True:
        said: object = None
        try:
            said = now = client.jobs.get(number)
            if condition(now):
                return now
        except (PeerUnreachable, PeerLost) as error:
            said = error
        assert time.monotonic() < deadline, said
        time.sleep(0.02)
