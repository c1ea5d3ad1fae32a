"""The floor under bound.py: the bytes over plain TCP, and TensorFlow's Adagrad kernel alone. Run as a script, a server.

It takes one byte at a time: ECHO, after which as many bytes follow as the block of memory has, and come back once they
are all there; or APPLY, to which it answers with the seconds that one update of all variables took.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import time
from typing import Any

import numpy as np

ECHO, APPLY = b"E", b"A"
_SECONDS = struct.Struct("<d")
# Elements of a variable: as long as the shard's pieces of a large parameter, which stay in the cache best.
_PIECE = 1 << 18
_SOCKET_BYTES = 4 << 20


class TcpAndKernel:
    """A connection to the server; `nbytes` as it was started with."""

    def __init__(self, address: str, nbytes: int) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        _tune(self._socket)
        self._sent = memoryview(np.ones(nbytes, np.uint8)).cast("B")
        self._received = memoryview(np.zeros(nbytes, np.uint8)).cast("B")

    def echo(self) -> None:
        """Sends all bytes and receives as many."""
        self._socket.sendall(ECHO)
        self._socket.sendall(self._sent)
        receive(self._socket, self._received)

    def apply(self) -> float:
        """The milliseconds of one update."""
        self._socket.sendall(APPLY)
        answer = memoryview(bytearray(_SECONDS.size))
        receive(self._socket, answer)
        return float(_SECONDS.unpack(answer)[0]) * 1e3

    def close(self) -> None:
        self._socket.close()


def receive(connection: socket.socket, into: memoryview) -> bool:
    """Fills the memory; False if the other end has gone."""
    while into:
        count = connection.recv_into(into)
        if not count:
            return False
        into = into[count:]
    return True


def _tune(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BYTES)


class Kernel:
    """Adagrad of so many float32 elements, by the kernel that the shard uses."""

    def __init__(self, elements: int, threads: int) -> None:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(threads)
        sizes = [min(_PIECE, elements - at) for at in range(0, elements, _PIECE)]
        generator = np.random.default_rng(0)
        self._update: Any = tf.raw_ops.ResourceApplyAdagrad
        self._rate = tf.constant(0.01)
        self._variables = [tf.Variable(tf.zeros([size])) for size in sizes]
        self._slots = [tf.Variable(tf.fill([size], 0.1)) for size in sizes]
        self._gradients = [tf.constant(generator.standard_normal(size, dtype=np.float32)) for size in sizes]

    def apply(self) -> float:
        """The seconds of one update."""
        begin = time.perf_counter()
        for variable, slot, gradient in zip(self._variables, self._slots, self._gradients, strict=True):
            self._update(var=variable.handle, accum=slot.handle, lr=self._rate, grad=gradient)
        return time.perf_counter() - begin


def serve(connection: socket.socket, memory: memoryview, kernel: Kernel) -> None:
    """Serves until the other end has gone."""
    command = memoryview(bytearray(1))
    while receive(connection, command):
        if command == APPLY:
            connection.sendall(_SECONDS.pack(kernel.apply()))
            continue
        if not receive(connection, memory):
            return
        connection.sendall(memory)


def main() -> None:
    from grpc_ps.client.shared.process import prepare_process

    parser = argparse.ArgumentParser(description="bound.py starts it.")
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    prepare_process()
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    kernel = Kernel(arguments.bytes // 4, arguments.threads)
    memory = memoryview(np.zeros(arguments.bytes, np.uint8)).cast("B")
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(f"READY address=127.0.0.1:{server.getsockname()[1]}", flush=True)
        connection, _ = server.accept()
        _tune(connection)
        serve(connection, memory, kernel)


if __name__ == "__main__":
    main()
