"""The floor under push_pull.py: the same bytes each way over one plain gRPC stream, with nothing done to them.

As in a push and pull, the answer begins when the whole request is there. Run as a script it is the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from queue import SimpleQueue
from typing import Any

_SERVICE, _METHOD = "benchmark.Raw", "Exchange"
_COUNT = "messages"
MESSAGE_BYTES = 1 << 20


class RawStream:
    """One stream to an echo server, which sends back what came once all messages of an exchange have come."""

    def __init__(self, address: str, nbytes: int) -> None:
        from grpc_ps.client.channel import open_channel

        whole = bytes(range(256)) * (nbytes // 256 + 1)
        self._messages = [whole[at : min(at + MESSAGE_BYTES, nbytes)] for at in range(0, nbytes, MESSAGE_BYTES)]
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._channel = open_channel(address)
        call = self._channel.stream_stream(f"/{_SERVICE}/{_METHOD}", None, None)
        self._responses: Any = call(iter(self._requests.get, None), metadata=((_COUNT, str(len(self._messages))),))

    def exchange(self) -> None:
        """Sends all messages and receives as many."""
        for message in self._messages:
            self._requests.put(message)
        for message in self._messages:
            assert len(next(self._responses)) == len(message)

    def close(self) -> None:
        self._requests.put(None)
        self._channel.close()


async def _echo(requests: AsyncIterator[bytes], context: Any) -> None:
    """Serves one stream; `requests` is not used, for `read` is what a server in earnest uses too."""
    import grpc.aio

    count = int(dict(context.invocation_metadata())[_COUNT])
    while True:
        received = []
        for _ in range(count):
            message = await context.read()
            if message is grpc.aio.EOF:  # type: ignore[attr-defined]
                return
            received.append(message)
        for message in received:
            await context.write(message)


async def _serve() -> None:
    import grpc.aio

    from grpc_ps.client.shared.channel_options import SERVER_OPTIONS

    server = grpc.aio.server(options=SERVER_OPTIONS)
    handlers = {_METHOD: grpc.stream_stream_rpc_method_handler(_echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"READY address=127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


def main() -> None:
    from grpc_ps.client.shared.process import prepare_process

    prepare_process()  # Before gRPC is imported, as in every command.
    asyncio.run(_serve())


if __name__ == "__main__":
    main()
