"""Connections to shards, and whether they can be made."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import grpc

from grpc_ps.client.shared.errors import Untrusted, from_rpc_error
from grpc_ps.client.shared.handshakes import unlike
from grpc_ps.client.shared.security import Security

# Seconds for gRPC's thread that watches a channel to end.
_WATCHING_SECONDS = 5.0
# A call that every server answers, also one that wants a token; and seconds for it.
_PROBE = "/grpc.health.v1.Health/Check"
_PROBE_SECONDS = 0.5


def open_channel(address: str, security: Security | None = None) -> grpc.Channel:
    """Opens a channel to `host:port`; the connection is made when it is first used and made again when it breaks."""
    return (security or Security()).channel(address)


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

    A context manager: it makes gRPC connect while it is open, and again when a connection breaks: by itself gRPC leaves
    such a channel idle until somebody calls. Its lock guards what gRPC's thread tells.
    """

    def __init__(self, channels: Mapping[str, grpc.Channel]) -> None:
        self._channels = channels
        self._changed = threading.Condition()
        self._missing = dict.fromkeys(channels, time.monotonic())
        self._failed: set[str] = set()
        self._hints: dict[str, str] = {}
        self._callbacks = {address: self._listener(address) for address in channels}
        self._open = False

    def __enter__(self) -> Reachability:
        self._open = True
        for address, channel in self._channels.items():
            channel.subscribe(self._callbacks[address], try_to_connect=True)
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._open = False
        for address, channel in self._channels.items():
            channel.unsubscribe(self._callbacks[address])

    def _listener(self, address: str):  # type: ignore[no-untyped-def]
        def listen(state: grpc.ChannelConnectivity) -> None:
            with self._changed:
                if state is grpc.ChannelConnectivity.READY:
                    self._missing.pop(address, None)
                    self._hints.pop(address, None)
                else:
                    self._missing.setdefault(address, time.monotonic())
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    self._failed.add(address)
                else:
                    self._failed.discard(address)
                if state is grpc.ChannelConnectivity.IDLE and self._open:
                    _connect(self._channels[address])
                self._changed.notify_all()

        return listen

    def missing(self) -> dict[str, float]:
        """Returns the addresses without a connection, with the seconds that has lasted."""
        now = time.monotonic()
        with self._changed:
            return {address: now - self._missing[address] for address in self._channels if address in self._missing}

    def hints(self) -> list[str]:
        """Returns, for what takes connections and is no shard, what may be wrong, each with its address.

        What was found of a peer holds also while gRPC tries it once more, until that has come to an end.

        Raises:
            Untrusted: TLS says that a peer is not to be trusted; waiting for that one is in vain.
        """
        with self._changed:
            failed = sorted(self._failed)
        found = {address: _why_not(self._channels[address], address) for address in failed}
        with self._changed:
            news = {address: why for address, why in found.items() if why is not None and address in self._missing}
            self._hints.update(news)
            return [f"{address}: {why}" for address, why in sorted(self._hints.items()) if why]

    def wait(self, address: str, seconds: float) -> bool:
        """Waits until that peer is connected; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: address not in self._missing, seconds)


def _connect(channel: grpc.Channel) -> None:
    """Makes gRPC connect an idle channel that is watched: its thread looks for that five times a second."""

    def ignore(state: grpc.ChannelConnectivity) -> None:
        pass

    channel.subscribe(ignore, try_to_connect=True)
    channel.unsubscribe(ignore)


def _why_not(channel: grpc.Channel, address: str) -> str | None:
    """What gRPC says of a connection that it could not make, empty for what is only not there; None if it is at it.

    Only a call is told. One that fails does so at once.
    """
    try:
        channel.unary_unary(_PROBE, None, None)(b"", timeout=_PROBE_SECONDS)
    except grpc.RpcError as error:
        if isinstance(refusal := from_rpc_error(error, address), Untrusted):
            raise refusal from None
        failure: Any = error
        at_it = failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        return None if at_it else unlike(failure.details() or "") or ""
    return None
