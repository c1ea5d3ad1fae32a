"""Which job, and which generation of it, a shard serves."""

from __future__ import annotations

from grpc_ps.client.shared.errors import RolledBack, WrongRun
from grpc_ps.protos import job_pb2


class JobIdentity:
    """The ids that every message must carry. Not guarded: used by the event loop alone.

    Attributes:
        run, generation: zero as long as a follower has not heard of its lead.
    """

    def __init__(self) -> None:
        self.run = 0
        self.generation = 0

    def check(self, identity: job_pb2.Identity) -> None:
        """Refuses what belongs to another job or generation.

        Raises:
            WrongRun, RolledBack
        """
        self.check_run(identity)
        if identity.generation != self.generation:
            raise RolledBack("the lead is in another generation: join again")

    def check_run(self, identity: job_pb2.Identity) -> None:
        """Refuses at once what can never be admitted: it is of another job. A follower knows its job from the link.

        Raises:
            WrongRun
        """
        if self.run and identity.run != self.run:
            raise WrongRun("that job is gone and another one runs here: start the worker anew")
