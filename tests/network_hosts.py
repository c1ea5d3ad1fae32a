"""Hosts on this machine, each with a network and an address of its own, and cables between them that can be cut."""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType

import pytest


class Hosts:
    """Network namespaces of Linux, joined by a bridge in one more; they go when the `with` is left.

    What a test starts within a host has to be ended before. Skips the test where the system does not allow this.
    """

    def __init__(self, count: int) -> None:
        self._prefix = f"grpc-ps-{os.getpid()}"
        self._count = count
        self._switch = f"{self._prefix}-switch"

    def address(self, host: int) -> str:
        """The address of a host; they count from 1."""
        return f"10.77.0.{host}"

    def within(self, host: int) -> list[str]:
        """The words that run a command on that host."""
        return ["ip", "netns", "exec", self._name(host)]

    def cut(self, host: int) -> None:
        """Pulls the cable of a host: nothing is told to anybody, what is sent is lost."""
        _ip("-n", self._switch, "link", "set", f"port{host}", "down")

    def heal(self, host: int) -> None:
        """Puts the cable back."""
        _ip("-n", self._switch, "link", "set", f"port{host}", "up")

    def __enter__(self) -> Hosts:
        if shutil.which("ip") is None:
            pytest.skip("there is no command ip (iproute2) to make network namespaces with")
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self._remove()
            pytest.skip(f"no network namespaces can be made here: {error.stderr.strip()}")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _name(self, host: int) -> str:
        return f"{self._prefix}-{host}"

    def _make(self) -> None:
        _ip("netns", "add", self._switch)
        _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "bridge", "up")
        for host in range(1, self._count + 1):
            name, port = self._name(host), f"port{host}"
            _ip("netns", "add", name)
            _ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", self._switch, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", name, "link", "set", device, "up")

    def _remove(self) -> None:
        for name in (self._switch, *(self._name(host) for host in range(1, self._count + 1))):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False, timeout=20)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, text=True, check=True, timeout=20)
