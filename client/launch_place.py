"""A process of a launch, by its name: whichever of its lives it is in, and how the next one begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grpc_ps.client.processes import Child
from grpc_ps.client.shared.faults import without_kills

_RESTORE = "--restore"


@dataclass
class Place:
    """What a launch knows of a process. Of the main thread alone.

    Attributes:
        command: of its first life; `child` is the present one.
        due: when to start it again, a time of time.monotonic(); None while it needs no start.
        address: a shard's, as it said it; kept over its lives.
        metrics: where its present life has its figures for Prometheus.
    """

    name: str
    command: Sequence[str]
    child: Child
    due: float | None = None
    address: str = ""
    metrics: str = ""

    @property
    def over(self) -> bool:
        """Whether it has ended for good."""
        return self.child.code is not None and self.due is None

    @property
    def is_shard(self) -> bool:
        """Whether it is a shard, and no worker."""
        return self.name.startswith("ps ")

    def command_again(self, *, saved: bool) -> Sequence[str]:
        """The command of its next life, without the faults that would kill it again.

        A shard gets its port again, for all the others know it by that. Where a checkpoint was `saved` it must still be
        there: a job is not begun anew without a word.
        """
        command = without_kills(_with_port(self.command, self.address))
        if self.is_shard and saved and _RESTORE not in command:
            return [*command, _RESTORE]
        return command


def _with_port(command: Sequence[str], address: str) -> Sequence[str]:
    """Returns a shard's command with the port of its address in the place of 0; others as they are."""
    if not address or "--port" not in command:
        return command
    place = command.index("--port") + 1
    return [*command[:place], address.rpartition(":")[2], *command[place + 1 :]]
