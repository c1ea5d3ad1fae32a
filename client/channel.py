"""Connections to shards, and whether they can be made."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import grpc

from grpc_ps.client.shared.channel_options import CLIENT_OPTIONS

# Seconds for gRPC's thread that watches a channel to end.
_WATCHING_SECONDS = 1.0


def open_channel(address: str) -> grpc.Channel:
    """Opens a channel to `host:port`; the connection is made when it is first used and made again when it breaks."""
    return grpc.insecure_channel(address, options=CLIENT_OPTIONS)


def close_channel(channel: grpc.Channel) -> None:
    """Closes a channel; calls under way end.

    gRPC's thread that watches a channel's state for `Reachability` ends up to 0.2 s after that, and fails with a
    traceback if the channel is closed meanwhile. gRPC has no way to wait for it but this attribute of its own.
    """
    watched: Any = getattr(channel, "_connectivity_state", None)
    deadline = time.monotonic() + _WATCHING_SECONDS
    while getattr(watched, "polling", False) and time.monotonic() < deadline:
        time.sleep(0.01)
    channel.close()


class Reachability:
    """Which of some peers are not connected, and for how long that has lasted without a break.

    A context manager: it makes gRPC connect while it is open. Its lock guards what gRPC's thread tells.
    """

    def __init__(self, channels: Mapping[str, grpc.Channel]) -> None:
        self._channels = channels
        self._changed = threading.Condition()
        self._missing = dict.fromkeys(channels, time.monotonic())
        self._callbacks = {address: self._listener(address) for address in channels}

    def __enter__(self) -> Reachability:
        for address, channel in self._channels.items():
            channel.subscribe(self._callbacks[address], try_to_connect=True)
        return self

    def __exit__(self, *_: object) -> None:
        for address, channel in self._channels.items():
            channel.unsubscribe(self._callbacks[address])

    def _listener(self, address: str):  # type: ignore[no-untyped-def]
        def listen(state: grpc.ChannelConnectivity) -> None:
            with self._changed:
                if state is grpc.ChannelConnectivity.READY:
                    self._missing.pop(address, None)
                else:
                    self._missing.setdefault(address, time.monotonic())
                self._changed.notify_all()

        return listen

    def missing(self) -> dict[str, float]:
        """Returns the addresses without a connection, with the seconds that has lasted."""
        now = time.monotonic()
        with self._changed:
            return {address: now - self._missing[address] for address in self._channels if address in self._missing}

    def wait(self, address: str, seconds: float) -> bool:
        """Waits until that peer is connected; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: address not in self._missing, seconds)
