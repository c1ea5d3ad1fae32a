"""What a machine may be like: ports that are not ours, no IPv6, GPUs in the environment."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ENDED, Command, ready

pytestmark = pytest.mark.e2e

# Without the capability to take a port below 1024, also as root.
UNPRIVILEGED = """
import ctypes, os, sys
PR_CAPBSET_DROP, CAP_NET_BIND_SERVICE = 24, 10
ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_NET_BIND_SERVICE, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
# A network of its own, whose loopback is down: 127.0.0.1 can be listened on there, ::1 cannot.
NO_IPV6 = ("unshare", "--user", "--map-root-user", "--net")


def psserver() -> str:
    return str(Path(sys.executable).with_name("psserver"))


def first_privileged_port() -> bool:
    """Whether this machine has ports that not everybody may take."""
    limit = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    return limit.exists() and int(limit.read_text()) > 81


@pytest.mark.skipif(not first_privileged_port(), reason="every port is everybody's here")
def test_b63_a_privileged_port_is_refused() -> None:
    """Fault B63: within seconds, with the port and what to do."""
    with Command("python", "-c", UNPRIVILEGED, psserver(), "--shard", 0, "--port", 81) as shard:
        assert shard.wait() == 2
    assert shard.lines == [
        "psserver: error: port 81 on 127.0.0.1 cannot be had: this process may not have it; choose one from 1024 on"
    ]


def test_b63_port_0_prints_the_real_port_on_one_line() -> None:
    with Command("psserver", "--shard", 0, "--port", 0, "--host", "localhost") as shard:
        host, _, port = ready(shard).rpartition(":")
    assert (host, int(port) > 0) == ("localhost", True)
    assert len([line for line in shard.lines if line.startswith("READY ")]) == 1


def test_b65_a_shard_starts_on_a_machine_without_ipv6() -> None:
    """Fault B65: it says what it does not listen on, and serves."""
    try:
        subprocess.run([*NO_IPV6, "true"], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not make a network of its own")
    program = ("import os, sys; os.execvp(sys.argv[1], sys.argv[1:])", *NO_IPV6, psserver())
    with Command("python", "-c", *program, "--shard", 0, "--port", 0, "--host", "localhost") as shard:
        ready(shard)
        shard.until(r"not_listening address=::1")
        shard.process.send_signal(signal.SIGTERM)
        assert shard.wait(ENDED) == 143


@pytest.mark.parametrize("value", [None, "", "-1", "0"])
def test_b70_a_shard_starts_whatever_the_environment_says_of_gpus(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    with Command("psserver", "--shard", 0, "--port", 0) as shard:
        ready(shard)
