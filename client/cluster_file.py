"""The file `cluster.json` in which `psctl launch` leaves where its processes are, for commands that come later."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from grpc_ps.client.shared.errors import UsageError

NAME = "cluster.json"
# Where `psctl launch` makes a folder for each run if it is told no other.
RUNS = Path("grpc-ps-logs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the cluster on this machine. A shard has an address, and `metrics` if Prometheus may read it."""

    name: str
    pid: int
    address: str = ""
    metrics: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFile:
    """What the file says. `exit_code` is None while the cluster runs, or if its launcher could not say the end."""

    launcher: int
    shards: tuple[Process, ...]
    workers: tuple[Process, ...] = ()
    exit_code: int | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """All shards, shard 0 first."""
        return tuple(shard.address for shard in self.shards)

    def write(self, folder: Path) -> None:
        """Writes the file; a reader sees the old one or the new one, never a part."""
        new = folder / f"{NAME}.{os.getpid()}"
        new.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        new.replace(folder / NAME)

    def ended(self, exit_code: int) -> ClusterFile:
        """Returns the same cluster after its end."""
        return replace(self, exit_code=exit_code)

    @classmethod
    def read(cls, folder: Path) -> ClusterFile:
        """Reads the file of a folder.

        Raises:
            UsageError: there is none, or it is no such file.
        """
        path = folder / NAME
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            shards = tuple(Process(**shard) for shard in fields.pop("shards"))
            workers = tuple(Process(**worker) for worker in fields.pop("workers"))
            return cls(shards=shards, workers=workers, **fields)
        except OSError as error:
            advice = "give the --log-dir of a `psctl launch` whose workers have been started, or --ps"
            raise UsageError(f"{path}: {error.strerror}; {advice}") from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UsageError(f"{path}: not a cluster file of this version") from None


def find(log_dir: Path | None) -> tuple[Path, ClusterFile]:
    """Returns folder and content of the cluster file that a command means.

    That is the one in `log_dir`; without it the one in the current folder; without that the newest run's.

    Raises:
        UsageError: there is none.
    """
    if log_dir is not None:
        return log_dir, ClusterFile.read(log_dir)
    runs = sorted(RUNS.glob(f"*/{NAME}"), key=lambda path: path.stat().st_mtime)
    paths = [path for path in (Path(NAME), *reversed(runs)) if path.exists()]
    if not paths:
        raise UsageError(f"no cluster named: give --ps or --log-dir (no {NAME} here nor under {RUNS}/)")
    return paths[0].parent, ClusterFile.read(paths[0].parent)


def is_running(pid: int) -> bool:
    """Whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def runs(folder: Path | None) -> bool:
    """Whether the launch of that folder has not ended; no folder is of none."""
    if folder is None:
        return False
    found = ClusterFile.read(folder)
    return found.exit_code is None and is_running(found.launcher)
