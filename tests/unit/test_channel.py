"""Channels to shards: closed in the middle of watching them, they leave no thread of gRPC's behind that fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from grpc_ps.client.channel import Reachability, close_channel, open_channel


def test_a_channel_is_closed_only_when_nothing_watches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of gRPC's that fails on a closed channel would be an error of this test, too."""
    server = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        for _ in range(5):
            channel = open_channel(address)
            # gRPC's own word on whether its thread watches: also a test that it still has it.
            state: Any = channel._connectivity_state  # type: ignore[attr-defined]
            with Reachability({address: channel}) as reach:
                assert reach.wait(address, 20)
                assert state.polling
            watched_when_closed: list[bool] = []

            def close(state: Any = state, seen: list[bool] = watched_when_closed, close: Any = channel.close) -> None:
                seen.append(state.polling)
                close()

            monkeypatch.setattr(channel, "close", close)
            close_channel(channel)
            assert watched_when_closed == [False]
    finally:
        server.stop(None).wait(10)


def test_what_was_never_connected_can_be_closed() -> None:
    channel = open_channel("127.0.0.1:1")
    close_channel(channel)
    with pytest.raises(ValueError, match="closed"):
        channel.unary_unary("/x/y")(b"", timeout=1)
