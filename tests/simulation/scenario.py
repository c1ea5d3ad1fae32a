"""What one seed simulates: the job, the speeds, and which faults happen how often."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.saving import SavePlan
from grpc_ps.psserver.lead.settings import Value

LIMITS = Limits(lease=1.6, link=4.0, start=10.0, rejoin=3.0, pin=2.0, recovery=8.0, save=12.0, retry=3.0)
"""Short, so that few events pass while somebody waits."""

RUN = 7

DURABLE_FROM = 1000
KEEPS_BACK_FROM = 10_000
"""Seeds below are of jobs without checkpoints: those that failed before there were any still do what they did."""

FAULTS = (
    "cut_stream",
    "cut_follower",
    "away",
    "crash",
    "freeze",
    "ghost",
    "leave",
    "newcomer",
    "rival",
    "partition",
    "change",
    "pin",
    "report",
)
"""What chaos may do; a seed takes some of these, so that each also happens without the others."""

CRASHES = ("crash_follower", "crash_lead", "leaving", "damage", "save", "crash_late")
"""What chaos may do besides, at a pace of its own, where there are checkpoints."""

FATAL = ("overflow", "reboot", "gone", "abandoned", "stop")
"""What ends a job early: at most one of these in a seed, in one seed of four."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A seed's choices. Times are virtual seconds.

    Attributes:
        settings: the job's.
        messages: how many messages a push is sent in, to each shard: 1 to 3.
        stops_early: workers look for answers while they send.
        compute: the mean time of a step; one worker may be `slow` times slower.
        delay: of a message, mostly; `kernel` of an update, 0 for at once.
        share: numbers of batches that workers have of their own; None where every worker has all data.
        faults: kinds by weight, one every `fault_every` seconds until `calm_at`.
        cut_chance: that a link breaks at a step of a push; `nan_chance` that a gradient has a NaN.
        fatal: what ends the job early, or nothing.
        crashes: kinds, one every `crash_every` seconds until then.
        plan: when checkpoints are written, None for never; `disk` is how long a part takes, mostly; `disk_chance` that
            it, or a commit, cannot be written.
        save_limit: seconds that an attempt may take.
        overlaps: every second worker computes its next gradient while a push is exchanged.
        spare: worker processes at the start beyond those that are needed.
        rejoins: whether fenced workers join again, and lost ones are replaced.
    """

    seed: int
    shards: int
    settings: dict[str, Value]
    messages: int
    stops_early: bool
    compute: float
    slow: float
    delay: float
    kernel: float
    share: tuple[int, ...] | None
    faults: dict[str, float]
    fault_every: float
    cut_chance: float
    nan_chance: float
    calm_at: float
    fatal: str
    spare: int
    rejoins: bool
    crashes: tuple[str, ...]
    crash_every: float
    plan: SavePlan | None
    disk: float
    disk_chance: float
    save_limit: float
    overlaps: bool

    @property
    def endless(self) -> bool:
        """Whether nothing but a stop ends the job."""
        return not self.settings["steps"] and not self.settings["epochs"] and self.share is None


def scenario(seed: int) -> Scenario:
    """Draws the choices of a seed."""
    random = Random(seed)
    settings, share = _job(random)
    quiet = random.random() < 0.15
    names = [name for name in FAULTS if random.random() < 0.4 and not quiet]
    if settings["mode"] == "sync" and share is not None:
        names = [name for name in names if name != "change"]
    fatal = random.choice(FATAL) if random.random() < 0.25 else ""
    faults = {name: random.choice((1.0, 1.0, 4.0)) for name in names}
    more = Random(seed ^ 0xD15C)
    if seed >= KEEPS_BACK_FROM and Random(seed ^ 0x70B4).random() < 0.15:
        # The rules of numbers are others then: see `SyncRounds`.
        settings["compress"] = "topk:0.25"
    durable = seed >= DURABLE_FROM and more.random() < 0.7
    if durable:
        fatal = "" if fatal == "reboot" else fatal
    return Scenario(
        seed=seed,
        shards=random.choice((1, 2, 2, 2, 3)),
        settings=settings,
        messages=random.choice((1, 1, 2, 3)),
        stops_early=random.random() < 0.6,
        compute=random.choice((0.02, 0.05, 0.1)),
        slow=random.choice((1.0, 1.0, 1.0, 10.0)),
        delay=random.choice((0.001, 0.01, 0.05)),
        kernel=random.choice((0.0, 0.0, 0.02)),
        share=share,
        faults=faults,
        fault_every=random.choice((0.05, 0.2, 0.8, 3.0)),
        cut_chance=0.0 if quiet else random.choice((0.0, 0.0, 0.01, 0.04)),
        nan_chance=random.choice((0.0, 0.0, 0.01, 0.1)),
        calm_at=random.choice((0.0, 3.0, 6.0, 12.0)),
        fatal=fatal,
        spare=random.choice((0, 0, 0, 1, 2)),
        rejoins=fatal != "abandoned",
        crashes=tuple(name for name in CRASHES if durable and more.random() < 0.5),
        crash_every=more.choice((0.3, 1.0, 3.0)),
        plan=_plan(more) if durable else None,
        disk=more.choice((0.0, 0.01, 0.1, 0.5)),
        disk_chance=more.choice((0.0, 0.0, 0.02, 0.3)),
        overlaps=seed % 4 == 3 and settings["mode"] == "async",
        save_limit=more.choice((LIMITS.save, LIMITS.save, 0.8)),
    )


def _plan(random: Random) -> SavePlan:
    steps = random.choice((0, 1, 2, 5, 10, 40))
    return SavePlan(steps=steps, seconds=random.choice((0.0, 0.3, 2.0)) if steps else random.choice((0.0, 0.3, 1.0)))


def _job(random: Random) -> tuple[dict[str, Value], tuple[int, ...] | None]:
    sync = random.random() < 0.6
    workers = random.choice((1, 2, 2, 3, 3, 4))
    settings: dict[str, Value] = {
        "mode": "sync" if sync else "async",
        "workers": workers,
        "backup": random.choice((0, 0, 1, 2)),
        "min_workers": random.choice((0, 0, 1, max(1, workers - 1))),
        "max_workers": random.choice((workers, workers + 2, 64)),
        "max_staleness": random.choice((-1, -1, 0, 1, 2, 4)),
        "learning_rate": 0.5,
    }
    if random.random() < 0.3:
        settings[random.choice(("clip_norm", "global_clip_norm"))] = 1.0
    if random.random() < 0.1:
        settings["until"], settings["eval_every"] = "accuracy>=0.9", 10
    share = None
    data = random.random()
    if data < 0.2:
        share = tuple(random.choice((0, 1, 2, 5, 20, 40)) for _ in range(8))
    elif data < 0.55:
        settings["batch_size"] = random.choice((1, 7, 10))
        settings["examples"] = random.choice((1, 20, 100, 101, 300))
        settings["epochs"] = random.choice((1, 2, 3))
    if data > 0.5 or random.random() < 0.1:
        settings["steps"] = random.choice((1, 5, 40, 120, 200))
    if share is None and not settings.get("epochs") and not settings.get("steps"):
        settings["steps"] = 60
    settings.setdefault("steps", 0)
    settings.setdefault("epochs", 0)
    return settings, share
