"""Faults that are made on purpose, to rehearse failures: what `--fault` says, and when each one strikes.

A fault strikes at a call (by the name of its rpc) or at a named point of the program. Whether it does is decided by the
seed, the fault, the process's name and the count of that call: the same sequence of calls meets the same faults.
"""

from __future__ import annotations

import logging
import math
import os
import random
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from grpc_ps.client.shared.flags import did_you_mean
from grpc_ps.client.shared.logs import event

KINDS = ("delay", "drop", "drop-answer", "duplicate", "cut")
"""Of faults that strike at a call. The other kind, `kill`, strikes at a point."""
FORMS = "delay:CALL=SECONDS[@P], drop:CALL[@P], drop-answer:CALL[@P], duplicate:CALL[@P], cut:CALL[@P], kill@POINT[:N]"

CUT_PROBABILITY = 0.01
"""Where none is given: a stream of which every message is cut would never get anywhere."""
MAX_SECONDS = 3600.0

SAVING_POINTS = (
    *("part.open", "part.write", "part.sync", "part.rename", "part.done"),
    *("commit.verify", "manifest.write", "manifest.sync", "manifest.rename", "commit.rename", "commit.done", "prune"),
)
SHARD_POINTS = ("pushed.header", "pushed.whole", "applied", "answered", *SAVING_POINTS)
"""Points of a shard: a push's header is read, all of it is here, it is applied, it is answered; those of saving."""
WORKER_POINTS = ("computed", "sent", "answered")
"""Points of a worker: gradients are computed, handed to gRPC, and their answer is here."""

_AT_CALL = re.compile(r"(?P<kind>[a-z-]+):(?P<call>\w+)(?:=(?P<seconds>[^@]*))?(?:@(?P<probability>.*))?")
_AT_POINT = re.compile(r"kill@(?P<point>[\w.]+)(?::(?P<passing>\d{1,18}))?")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault, as one `--fault` says it; `str` gives that form again.

    Attributes:
        kind: one of KINDS, or "kill".
        where: the rpc's name, or the point.
        seconds: that a call or message is delayed.
        probability: of striking, at each call, or at each message of a stream.
        passing: the process kills itself at this passing of the point, from 1.
    """

    kind: str
    where: str
    seconds: float = 0.0
    probability: float = 1.0
    passing: int = 1

    def __str__(self) -> str:
        if self.kind == "kill":
            return f"kill@{self.where}" + (f":{self.passing}" if self.passing > 1 else "")
        seconds = f"={self.seconds!r}" if self.kind == "delay" else ""
        chance = f"@{self.probability!r}" if self.probability < 1 else ""
        return f"{self.kind}:{self.where}{seconds}{chance}"


@dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """All faults of a process, and their seed. The empty plan is a process that fails by itself only."""

    faults: tuple[Fault, ...] = ()
    seed: int = 0


def parse_fault(text: str, calls: Mapping[str, bool], points: Collection[str]) -> Fault:
    """Reads one fault. `calls` has the rpcs that it may name, each with whether it streams; `points` those of kills.

    Raises ValueError, with a text that says what would do.
    """
    text = text.strip()
    if text.startswith("kill"):
        return _parse_kill(text, points)
    found = _AT_CALL.fullmatch(text)
    if found is None:
        raise ValueError(f"must be {FORMS}")
    kind, call = found["kind"], found["call"]
    _check_word("kind", kind, (*KINDS, "kill"), f"; the forms are {FORMS}")
    _check_word("call", call, calls)
    if kind == "delay" and found["seconds"] is None:
        raise ValueError(f"how long? write delay:{call}=SECONDS")
    if kind != "delay" and found["seconds"] is not None:
        raise ValueError(f"only delay has seconds; write {kind}:{call}[@P]")
    _check_streams(kind, call, calls)
    return Fault(
        kind=kind,
        where=call,
        seconds=_number(found["seconds"], "SECONDS", MAX_SECONDS) if kind == "delay" else 0.0,
        probability=_probability(found["probability"], kind),
    )


def _parse_kill(text: str, points: Collection[str]) -> Fault:
    found = _AT_POINT.fullmatch(text)
    if found is None:
        raise ValueError(f"must be kill@POINT[:N]; points are {', '.join(points)}")
    _check_word("point", found["point"], points)
    passing = int(found["passing"] or 1)
    if not passing:
        raise ValueError("N counts from 1")
    return Fault(kind="kill", where=found["point"], passing=passing)


def _check_word(what: str, word: str, known: Collection[str], more: str = "") -> None:
    if word not in known:
        hint = did_you_mean(word, list(known)) or f"; known are {', '.join(known)}"
        raise ValueError(f"unknown {what} {word}{hint}{more}")


def _check_streams(kind: str, call: str, calls: Mapping[str, bool]) -> None:
    if kind == "cut" and not calls[call]:
        raise ValueError(f"{call} is no stream that could be cut; drop and drop-answer are for calls")
    if kind == "duplicate" and calls[call]:
        raise ValueError(f"{call} is a stream; cut it, and what was under way is sent again")


def _probability(text: str | None, kind: str) -> float:
    if text is None:
        return CUT_PROBABILITY if kind == "cut" else 1.0
    return _number(text, "the probability", 1.0)


def _number(text: str, what: str, maximum: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= maximum:
        raise ValueError(f"{what} must be a number above 0 and at most {maximum:g}, not {text!r}")
    return number


def without_kills(command: Sequence[str]) -> list[str]:
    """Returns a command line without its kills: a process that is started again is not killed once more."""
    kept: list[str] = []
    for word in command:
        if kept and kept[-1] == "--fault" and word.startswith("kill"):
            kept.pop()
        elif not word.startswith("--fault=kill"):
            kept.append(word)
    return kept


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Faults:
    """The faults of a running process. False if there are none.

    `_lock` guards the counts: checkpoints are written by other threads than calls are served by.

    Args:
        plan: which they are.
        who: the process's name; two shards with one seed meet different faults.
        kill: ends this process; tests have another way.
    """

    def __init__(self, plan: FaultPlan, who: str = "", *, kill: Callable[[], None] = _kill) -> None:
        self._plan = plan
        self._who = who
        self._kill = kill
        self._kills = frozenset(fault for fault in plan.faults if fault.kind == "kill")
        self._points = frozenset(fault.where for fault in self._kills)
        self._lock = threading.Lock()
        self._counts: Counter[Fault | str] = Counter()
        self._strikes: Counter[Fault] = Counter()

    def __bool__(self) -> bool:
        return bool(self._plan.faults)

    def names(self, call: str) -> bool:
        """Whether any fault is of that call: whatever else is served stays as it is."""
        return any(fault.where == call for fault in self._plan.faults if fault.kind != "kill")

    def strike(self, kind: str, call: str) -> bool:
        """Decides whether a fault of that kind strikes now, and says so in the log."""
        return any(self._decide(fault) for fault in self._of(kind, call))

    def delay(self, call: str) -> float:
        """Returns the seconds that a call or message has to wait now."""
        return sum(fault.seconds for fault in self._of("delay", call) if self._decide(fault))

    def at(self, point: str) -> None:
        """Passes a point of the program; does not return where a fault kills the process there."""
        if point not in self._points:
            return
        with self._lock:
            self._counts[point] += 1
            passing = self._counts[point]
        if Fault(kind="kill", where=point, passing=passing) in self._kills:
            event(logger, "fault", logging.WARNING, kind="kill", point=point, count=passing)
            self._kill()

    def _of(self, kind: str, call: str) -> list[Fault]:
        return [fault for fault in self._plan.faults if (fault.kind, fault.where) == (kind, call)]

    def _decide(self, fault: Fault) -> bool:
        with self._lock:
            self._counts[fault] += 1
            count = self._counts[fault]
            if random.Random(f"{self._plan.seed} {self._who} {fault} {count}").random() >= fault.probability:
                return False
            self._strikes[fault] += 1
            strikes = self._strikes[fault]
        # Messages are many: of delays the first is told, the second, the fourth, and so on.
        if fault.kind != "delay" or not strikes & (strikes - 1):
            event(logger, "fault", logging.WARNING, kind=fault.kind, call=fault.where, count=count)
        return True
