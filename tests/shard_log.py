"""What the shards of this process log: lines to wait for, and what they say of checkpoints and rollbacks."""

from __future__ import annotations

import logging

from history import wait_for

from grpc_ps.client.shared.logs import ROOT


class ShardLog(logging.Handler):
    """Keeps the lines of everything in this process, without the times, from `begin` to `end`.

    Attributes:
        lines: all of them, in order.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def begin(self) -> None:
        root = logging.getLogger(ROOT)
        root.addHandler(self)
        root.setLevel(logging.INFO)

    def end(self) -> None:
        logging.getLogger(ROOT).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def of(self, *words: str) -> list[str]:
        """The lines that begin with the first word and have the others."""
        first, *others = words
        return [line for line in list(self.lines) if line.startswith(first) and all(word in line for word in others)]

    def until(self, *words: str, count: int = 1, seconds: float = 40.0) -> str:
        """Waits for that many such lines; returns the last of them."""
        wait_for(lambda: len(self.of(*words)) >= count, f"a line {words}", seconds)
        return self.of(*words)[count - 1]

    def until_committed(self, step: int) -> None:
        """Waits until the lead has told of the checkpoint of that step."""
        self.until("checkpoint ", f"global_step={step} ")

    def rollbacks(self) -> list[tuple[int, int]]:
        """From which step to which the job has gone back, in order; the lead's own restarts are not among them."""
        fields = [dict(word.split("=", 1) for word in line.split()[1:3]) for line in self.of("rollback ")]
        return [(int(it["from_step"]), int(it["to_step"])) for it in fields]

    def check_nothing_confirmed_is_lost(self) -> None:
        """The job has never gone back behind a checkpoint that the lead had told of."""
        confirmed = -1
        for line in self.lines:
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if line.startswith("checkpoint "):
                confirmed = max(confirmed, int(words["global_step"]))
            if line.startswith(("rollback ", "resumed ")):
                assert int(words.get("to_step", words.get("global_step", ""))) >= confirmed, line
