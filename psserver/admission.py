"""Which lives of workers the log has admitted on this shard, and which it has ended."""

from __future__ import annotations

from grpc_ps.client.shared.errors import Fenced


class Admission:
    """The latest lives by worker index: incarnations rise over the job. Not guarded: used by the event loop alone."""

    def __init__(self) -> None:
        self._admitted: dict[int, int] = {}
        self._dismissed: dict[int, int] = {}

    def admit(self, worker: int, incarnation: int) -> None:
        """A life has begun."""
        self._admitted[worker] = incarnation

    def dismiss(self, worker: int, incarnation: int) -> None:
        """A life is over."""
        if self._admitted.get(worker) == incarnation:
            del self._admitted[worker]
        self._dismissed[worker] = max(self._dismissed.get(worker, 0), incarnation)

    def knows(self, worker: int, incarnation: int) -> bool:
        """Whether the log has come as far as that life."""
        return max(self._admitted.get(worker, 0), self._dismissed.get(worker, 0)) >= incarnation

    def check(self, worker: int, incarnation: int) -> None:
        """Refuses a life that the log has ended: nothing would ever name what it pushes.

        Raises:
            Fenced
        """
        admitted = self._admitted.get(worker, 0)
        if admitted > incarnation:
            raise Fenced(f"worker {worker} has joined again since")
        if admitted != incarnation:
            raise Fenced(f"worker {worker} is no member any more")
