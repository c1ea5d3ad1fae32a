"""A launched job whose processes are killed while it trains, and what is to hold of it afterwards."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from commands import Command

from grpc_ps.client import PSClient, PsError
from grpc_ps.client.cluster_file import ClusterFile, Process

# Seconds for a whole run: each of the processes that are started again imports TensorFlow once more.
DEADLINE = 300.0
SHARDS = 2
WORKERS = 3
# Global steps; the last kill is due in the first three quarters, so that the job cannot end before.
STEPS = 400
# That these take a while, also where whoever looks at the step is slow: the last quarter lasts three seconds.
PACE = {"async": 0.1, "sync": 0.03, "backup": 0.03}
FLAGS: dict[str, tuple[object, ...]] = {
    "async": ("--workers", WORKERS),
    "sync": ("--mode", "sync", "--workers", WORKERS),
    "backup": ("--mode", "sync", "--workers", WORKERS - 1, "--backup", 1),
}
VICTIMS = ("ps 0", "ps 1", "worker 0", "worker 1", "worker 2")

_CHECKPOINT = re.compile(r"psserver 0 checkpoint global_step=(\d+)")
_BACK = re.compile(r"psserver 0 (?:rollback from_step=\d+ to_step=|resumed checkpoint=\S+ global_step=)(\d+)")


@dataclass(frozen=True)
class Kill:
    """Whom to kill, and when: as soon as a global step is read, or, without one, while the last victim is started."""

    victim: str
    step: int | None


@dataclass
class Report:
    """What a run with kills was like.

    Attributes:
        kills: the victims in order, each with the last global step that was read.
        restarts: how many processes the launcher started again.
        stall: the longest time, in seconds, in which the largest global step so far did not grow.
    """

    kills: list[tuple[str, int]] = field(default_factory=list)
    restarts: int = 0
    stall: float = 0.0


class Readings:
    """Asks the lead for the global step, again and again, in a thread of its own; the lead may be gone at times.

    Attributes:
        step: the last one read since the last kill.
        stall: see `Report`; from the first step on.
    """

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self.step = 0
        self.stall = 0.0
        self._highest = 0
        self._grew: float | None = None
        self._news = threading.Condition()
        self._over = threading.Event()
        self._addresses = addresses
        self._thread = threading.Thread(target=self._read, name="readings")

    def __enter__(self) -> Readings:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def until(self, step: int, ended: threading.Event) -> None:
        """Waits until a step is reached."""
        deadline = time.monotonic() + DEADLINE
        with self._news:
            while self.step < step:
                assert not ended.is_set(), f"the job ended at step {self.step}, before step {step}"
                assert time.monotonic() < deadline, f"still at step {self.step}, not at {step}"
                self._news.wait(0.05)

    def forget(self) -> None:
        """Lets `until` wait for what is read from now on."""
        with self._news:
            self.step = -1

    def _read(self) -> None:
        with PSClient(self._addresses) as client:
            while not self._over.wait(0.04):
                try:
                    step = client.status().global_step
                except PsError:
                    continue
                with self._news:
                    self._note(step, time.monotonic())
                    self._news.notify_all()

    def _note(self, step: int, now: float) -> None:
        self.step = step
        if step > self._highest:
            self.stall = max(self.stall, now - self._grew if self._grew is not None else 0.0)
            self._highest, self._grew = step, now


def launch_flags(mode: str, folder: Path) -> tuple[object, ...]:
    """The run that is disturbed, or not."""
    job = ("--ps", SHARDS, "--model", "mnist", "--data", "digits", "--steps", STEPS, "--batch-size", 20, "--seed", 7)
    saved = ("--checkpoint-dir", folder / "checkpoints", "--checkpoint-steps", 10, "--lease", 2)
    pace = [word for worker in range(WORKERS) for word in ("--fault", f"worker {worker}: delay:PushPull={PACE[mode]}")]
    return (*job, *FLAGS[mode], *pace, *saved, "--log-dir", folder / "logs", "--json", "--max-restarts", 9)


def chosen(mode: str, seed: int) -> list[Kill]:
    """Draws three kills, of the lead, the other shard and a worker in some order; one in four comes at once."""
    draw = random.Random(f"{mode} {seed}")
    victims = ["ps 0", "ps 1", f"worker {draw.randrange(WORKERS)}"]
    draw.shuffle(victims)
    steps = sorted(draw.randrange(1, STEPS * 3 // 4) for _ in victims)
    at_once = [seed > 0 and number > 0 and draw.random() < 0.25 for number in range(len(victims))]
    return [Kill(victim, None if soon else step) for victim, step, soon in zip(victims, steps, at_once, strict=True)]


def run_with_kills(mode: str, folder: Path, kills: list[Kill]) -> Report:
    """Launches the job, kills with SIGKILL as told, and checks the end and that no confirmed step was lost."""
    report = Report()
    folder.mkdir()
    with Command("psctl", "launch", *launch_flags(mode, folder)) as launch:
        launch.until(r"^shards: ")
        addresses = ClusterFile.read(folder / "logs").addresses
        ended = threading.Event()
        waiter = threading.Thread(target=lambda: (launch.wait(DEADLINE), ended.set()), name="end of the launch")
        with Readings(addresses) as readings:
            waiter.start()
            for kill in kills:
                if kill.step is not None:
                    readings.until(kill.step, ended)
                report.kills.append((kill.victim, readings.step))
                os.kill(_process(folder, kill.victim).pid, signal.SIGKILL)
                launch.until(rf"^restart {kill.victim} \(signal 9\)")
                readings.forget()
            waiter.join(DEADLINE)
        assert launch.process.returncode == 0, launch.text
    summary = launch.summary()
    report.restarts, report.stall = summary["restarts"], readings.stall
    assert report.restarts >= len(kills)
    assert summary["global_step"] == STEPS, launch.text
    assert (folder / "checkpoints" / f"step-{STEPS:08d}" / "manifest.json").exists(), launch.text
    check_nothing_confirmed_is_lost((folder / "logs" / "ps-0.log").read_text())
    return report


def _process(folder: Path, name: str) -> Process:
    cluster = ClusterFile.read(folder / "logs")
    return next(process for process in (*cluster.shards, *cluster.workers) if process.name == name)


def check_nothing_confirmed_is_lost(log: str) -> None:
    """Whether the job always went back to the newest checkpoint that the lead had said to be there, or a newer one."""
    confirmed = -1
    for line in log.splitlines():
        if saved := _CHECKPOINT.search(line):
            confirmed = max(confirmed, int(saved[1]))
        if back := _BACK.search(line):
            assert int(back[1]) >= confirmed, f"step {confirmed} was confirmed: {line}"
    assert confirmed == STEPS
