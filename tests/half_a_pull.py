"""A program that begins to read the model, says so, and hangs: to be killed in the middle of a pull.

python half_a_pull.py ADDRESS
"""

from __future__ import annotations

import sys
import threading

import grpc


def main() -> None:
    with grpc.insecure_channel(sys.argv[1]) as channel:
        messages = channel.unary_stream("/grpc_ps.v1.ParameterServer/Pull")(b"")
        next(messages)
        print("got", flush=True)
        threading.Event().wait(60)


if __name__ == "__main__":
    main()
