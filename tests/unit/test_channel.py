"""Channels to shards: closed in the middle of watching them, they leave no thread of gRPC's behind that fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from grpc_ps.client import channel as channels
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


def test_what_is_wrong_with_a_peer_is_known_while_it_is_tried_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gives up in just that moment says it, too."""
    found: list[str | None] = ["it closes each connection at once"]
    monkeypatch.setattr(channels, "_why_not", lambda channel, address: found[0])
    states = grpc.ChannelConnectivity
    channel = open_channel("127.0.0.1:1")
    reach = Reachability({"127.0.0.1:1": channel})
    listen = reach._callbacks["127.0.0.1:1"]
    wrong = ["127.0.0.1:1: it closes each connection at once"]

    def hints(state: grpc.ChannelConnectivity, why: str | None) -> list[str]:
        listen(state)
        found[0] = why
        return reach.hints()

    assert hints(states.TRANSIENT_FAILURE, "it closes each connection at once") == wrong
    assert hints(states.CONNECTING, "") == wrong
    assert hints(states.TRANSIENT_FAILURE, None) == wrong, "the call has found it at another try"
    assert hints(states.TRANSIENT_FAILURE, "") == [], "it is only not there now"
    assert hints(states.TRANSIENT_FAILURE, "it closes each connection at once") == wrong
    assert hints(states.READY, "") == []
    close_channel(channel)
