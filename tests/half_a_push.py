"""A program that sends what it is given on a training stream, says so, and hangs: to be killed in the middle of a push.

python half_a_push.py ADDRESS FILE      with the messages of the stream in FILE, one a line, in hexadecimal
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc


def main() -> None:
    address, file = sys.argv[1:]
    messages = [bytes.fromhex(line) for line in Path(file).read_text().splitlines()]

    def requests() -> Iterator[bytes]:
        yield from messages
        # gRPC asks for more when it has taken the last one.
        print("sent", flush=True)
        threading.Event().wait(60)

    with grpc.insecure_channel(address) as channel:
        for _ in channel.stream_stream("/grpc_ps.v1.ParameterServer/PushPull")(requests()):
            pass


if __name__ == "__main__":
    main()
