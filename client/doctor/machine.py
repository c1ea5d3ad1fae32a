"""What this machine gives: cores, memory, file descriptors, a port; and what of its environment does not count."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Mapping
from pathlib import Path

from grpc_ps.client.doctor.check import USAGE, Check, fail, ok, warn

GIB = 1 << 30
# A worker or shard with TensorFlow in it takes two thirds of a GiB before it has a model.
LEAST_MEMORY = 2 * GIB
# A lead has a connection of each member, of each shard and of each reader, and files beside.
LEAST_FILES = 1024

_PROXIES = ("grpc_proxy", "http_proxy", "https_proxy", "all_proxy")


def check_cores() -> Check:
    """Says how many cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ok("cores", str(cores))


def check_memory(meminfo: Path = Path("/proc/meminfo")) -> Check:
    """Looks at the memory that is free."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text(encoding="ascii").splitlines())
        free, whole = (int(lines[key].split()[0]) * 1024 for key in ("MemAvailable", "MemTotal"))
    except (OSError, ValueError, KeyError):
        return warn("memory", f"{meminfo} does not say how much there is")
    text = f"{free / GIB:.1f} of {whole / GIB:.1f} GiB available"
    if free < LEAST_MEMORY:
        return warn("memory", f"{text}; a process with TensorFlow takes 0.7 GiB, and the model comes on top")
    return ok("memory", text)


def check_files(limits: tuple[int, int] | None = None) -> Check:
    """Looks at how many files and connections a process may have open."""
    soft, hard = limits or resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return ok("open files", "no limit")
    if soft >= LEAST_FILES:
        return ok("open files", f"{soft} a process")
    most = "" if hard == resource.RLIM_INFINITY else f" (at most {hard})"
    text = f"{soft} a process: too few for a lead with many workers; raise it: ulimit -n {LEAST_FILES}{most}"
    return warn("open files", text)


def check_proxies(environment: Mapping[str, str] = os.environ) -> Check:
    """Names the variables for proxies: links inside a cluster are direct, whatever they say."""
    named = sorted(name for name in environment if name.lower() in _PROXIES and environment[name])
    if named:
        return ok("proxies", f"{', '.join(named)} set, and not used: processes of a cluster connect directly")
    return ok("proxies", "none set")


def check_port(host: str, port: int) -> Check:
    """Tries whether a shard could listen there, on every address that the host's name has."""
    name = f"port {port}"
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        return fail(name, f"--host {host} cannot be resolved: {error.strerror}", USAGE)
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                tried.bind(address)
                tried.listen()
        except OSError as error:
            return fail(name, f"cannot be had on {address[0]}: {_why(error)}", USAGE)
    return ok(name, f"free on {', '.join(sorted({str(one[4][0]) for one in found}))}")


def _why(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "it is in use; end what has it, or give another --port (0 picks a free one)"
        case errno.EACCES:
            return "this user may not have it; give one from 1024 on"
        case errno.EADDRNOTAVAIL:
            return "that is no address of this machine; give one of its own as --host, or 0.0.0.0 for all"
    return error.strerror or str(error)
