"""The file of `psctl launch --hosts`: which host runs which processes, and the commands that follow from it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from grpc_ps.client.shared.addresses import parse_addresses
from grpc_ps.client.shared.cores import listed, parse_cores
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.flags import did_you_mean
from grpc_ps.client.shared.security import listening

PORT = 2222
"""The port of a host's first shard, where its line has none."""
_MAX = 1024
_KEYS = ("ps", "workers", "cores", "bin")


@dataclass(frozen=True, kw_only=True)
class Host:
    """One line of the file: `[USER@]HOST[:PORT] [ps=N] [workers=N] [cores=LIST] [bin=DIR]`.

    Attributes:
        login: what ssh connects to.
        name: the host in the addresses of its shards; an IPv6 address in brackets.
        port: of its first shard; each further one has the next.
        shards, workers: how many of each it runs.
        cores: for its workers, one each, in turn where there are more workers; empty for all.
        programs: the folder of psserver, worker and psctl there; empty for its PATH.
    """

    login: str
    name: str
    port: int = PORT
    shards: int = 0
    workers: int = 0
    cores: tuple[int, ...] = ()
    programs: str = ""

    def program(self, name: str) -> str:
        """Returns the command of that name on this host."""
        return f"{self.programs.rstrip('/')}/{name}" if self.programs else name


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """A process of the cluster, on its host: named as in a launch, with its whole command there."""

    host: Host
    name: str
    command: tuple[str, ...]

    def line(self) -> str:
        """Returns the command as one types it into a shell."""
        return shlex.join(self.command)


def parse_hosts(text: str, where: str) -> tuple[Host, ...]:
    """Reads the file; `where` names it for people. `#` begins a comment.

    Raises:
        UsageError: names the line and what is wrong there, or what the whole lacks.
    """
    lines = [(number, line.partition("#")[0].split()) for number, line in enumerate(text.splitlines(), 1)]
    hosts = tuple(_host(words, f"{where}, line {number}") for number, words in lines if words)
    if not any(host.shards for host in hosts) or not any(host.workers for host in hosts):
        raise UsageError(f"{where}: needs a host with ps=1 and one with workers=1, or one with both")
    _check_once(hosts, [number for number, words in lines if words], where)
    return hosts


def _check_once(hosts: Sequence[Host], lines: Sequence[int], where: str) -> None:
    seen: dict[str, int] = {}
    for host, line in zip(hosts, lines, strict=True):
        if host.name in seen:
            raise UsageError(f"{where}, line {line}: {host.name} has line {seen[host.name]} already; a host has one")
        seen[host.name] = line


def shared_cores(hosts: Iterable[Host]) -> list[str]:
    """Returns for people where workers get fewer cores than they are: they take turns on them."""
    return [
        f"{host.name}: {host.workers} workers share {len(host.cores)} core{'s' * (len(host.cores) > 1)}"
        f" (cores={listed(host.cores)})"
        for host in hosts
        if 0 < len(host.cores) < host.workers
    ]


def addresses(hosts: Iterable[Host]) -> tuple[str, ...]:
    """Returns the addresses of all shards, shard 0 first: in the order of the lines."""
    return tuple(f"{host.name}:{host.port + number}" for host in hosts for number in range(host.shards))


def assign(
    hosts: Sequence[Host],
    *,
    shard: Sequence[str],
    worker: Sequence[str],
    own: Mapping[str, Sequence[str]],
    pin: bool = False,
) -> tuple[Assigned, ...]:
    """Returns all processes in the order of the lines, shards before workers.

    Args:
        hosts: where they run.
        shard: flags of every shard, without number, list and address.
        worker: flags of every worker, without list and index.
        own: flags of single processes, by their names.
        pin: whether each worker of a host without a list of cores has one for itself, from core 0 on.
    """
    ps = ",".join(addresses(hosts))
    found: list[Assigned] = []
    shards = workers = 0
    for host in hosts:
        for _ in range(host.shards):
            flags = ["--shard", str(shards), "--ps", ps, "--host", listening(host.name), *shard]
            found.append(_assigned(host, "psserver", f"ps {shards}", flags, own))
            shards += 1
        for number in range(host.workers):
            cores = host.cores or (tuple(range(host.workers)) if pin else ())
            mine = ["--cores", listed([cores[number % len(cores)]])] if cores else []
            flags = ["--ps", ps, "--index", str(workers), *mine, *worker]
            found.append(_assigned(host, "worker", f"worker {workers}", flags, own))
            workers += 1
    return tuple(found)


def _assigned(host: Host, program: str, name: str, flags: Sequence[str], own: Mapping[str, Sequence[str]]) -> Assigned:
    return Assigned(host=host, name=name, command=(host.program(program), *flags, *own.get(name, ())))


def _host(words: Sequence[str], where: str) -> Host:
    login, at, address = words[0].rpartition("@")
    # A host that has only workers needs no port; parsing wants one.
    has_port = address.rpartition("]")[2].count(":") == 1
    name, _, port = parse_addresses(address if has_port else f"{address}:{PORT}", where)[0].rpartition(":")
    values = _values(words[1:], where)
    host = Host(
        login=f"{login}{at}{name.strip('[]')}",
        name=name,
        port=int(port),
        shards=_count(values, "ps", where),
        workers=_count(values, "workers", where),
        cores=_cores(values, where),
        programs=values.get("bin", ""),
    )
    if not host.shards and not host.workers:
        raise UsageError(f"{where}: {words[0]} has nothing to run; give ps=N, workers=N or both")
    if host.port + host.shards - 1 > 65535:
        raise UsageError(f"{where}: port {host.port}: its {host.shards} shards need as many ports from there on")
    return host


def _values(words: Sequence[str], where: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in _KEYS:
            raise UsageError(f"{where}: unknown {key}{did_you_mean(key, _KEYS)}; there are {', '.join(_KEYS)}")
        if not equals or not value or key in values:
            raise UsageError(f"{where}: {word}: must be {key}=..., once")
        values[key] = value
    return values


def _count(values: Mapping[str, str], key: str, where: str) -> int:
    text = values.get(key, "0")
    if not text.isdecimal() or int(text) > _MAX:
        raise UsageError(f"{where}: {key}={text}: must be a whole number, 0 to {_MAX}")
    return int(text)


def _cores(values: Mapping[str, str], where: str) -> tuple[int, ...]:
    try:
        return parse_cores(values["cores"]) if "cores" in values else ()
    except ValueError as error:
        raise UsageError(f"{where}: cores={values['cores']}: {error}") from None
