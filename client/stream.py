"""One training stream to one shard."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Protocol

import grpc

from grpc_ps.client.receiving import take_chunk
from grpc_ps.client.row_traffic import Receiver
from grpc_ps.client.shared.codec import ChunkView, detach_chunk
from grpc_ps.client.shared.errors import Corrupt, PeerLost, PeerUnreachable, PsError, from_rpc_error
from grpc_ps.client.shared.image import Bytes, Layout
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire

# Messages encoded ahead of gRPC: enough to keep it busy, and at 1 MiB each no burden.
WINDOW = 8


class Stream(Protocol):
    """What a session needs of a training stream."""

    address: str

    def attach(self, identity: job_pb2.Identity, job: job_pb2.JobSpec | None) -> None:
        """Opens the stream."""

    def attached(self, timeout: float) -> wire.Attached:
        """Waits for the shard's word that it is open."""

    def send(self, message: bytes) -> None:
        """Sends one message."""

    def read_ahead(self) -> None:
        """Begins to read the next message that may say something of a push beside what else is done."""

    def peek(self) -> wire.Answer | None:
        """Shows the newest answer that was read ahead."""

    def read_answer(
        self,
        layout: Layout,
        destinations: Sequence[Bytes],
        begins: Callable[[], None] = lambda: None,
        rows: Receiver | None = None,
    ) -> wire.Answer:
        """Reads the next answer."""

    def read_image(self, layout: Layout, destinations: Sequence[Bytes], total: int) -> None:
        """Reads what follows `attached`."""

    def failure(self) -> PsError | None:
        """Says why the stream ended."""

    def close(self) -> None:
        """Ends the stream."""


class TrainingStream:
    """A bidirectional call: one thread writes and reads; `close` may come from any other and wakes it.

    A message that is read ahead is read by another thread, and by the first one only when that has ended.

    The two queues do their own locking. The flags are set once and never taken back, in gRPC's thread (`_ended`), the
    watchdog's (`_expired`) or whichever closes (`_closed`), each by one assignment, so nothing else is locked.

    Args:
        start: starts the call with its requests.
        address: the shard's, for people.
        on_end: called once, from any thread, when the call has ended for whatever reason.
    """

    def __init__(self, start: Callable[[Iterator[bytes]], Any], address: str, on_end: Callable[[], None]) -> None:
        self.address = address
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(WINDOW):
            self._room.put(None)
        self._on_end = on_end
        self._ended = False
        self._closed = False
        self._expired: PsError | None = None
        self._ahead: deque[Future[bytes]] = deque()
        self._call = start(self._requests())
        if not self._call.add_callback(self._end):
            self._end()

    def _requests(self) -> Iterator[bytes]:
        """Runs in gRPC's thread, which asks for the next message when it has sent the one before."""
        while (message := self._outbox.get()) is not None:
            yield message
            self._room.put(None)

    def _end(self) -> None:
        self._ended = True
        self._outbox.put(None)
        self._room.put(None)
        self._on_end()

    def attach(self, identity: job_pb2.Identity, job: job_pb2.JobSpec | None) -> None:
        """Sends `attach`; `attached` waits for what the shard says to it. Raises PsError if the stream has ended."""
        self.send(wire.PushPullRequest(attach=wire.Attach(id=identity, job=job)).SerializeToString())

    def attached(self, timeout: float) -> wire.Attached:
        """Waits for the shard's word to `attach` at most `timeout` seconds; then the stream is closed."""
        watchdog = threading.Timer(timeout, self._expire, (timeout,))
        watchdog.daemon = True
        watchdog.start()
        try:
            response, _ = self._read()
        finally:
            watchdog.cancel()
        if not response.HasField("attached"):
            raise Corrupt(f"{self.address}: the stream began without `attached`")
        return response.attached

    def _expire(self, timeout: float) -> None:
        self._expired = PeerUnreachable(f"{self.address}: no answer within {timeout:.1f} s")
        self._call.cancel()

    def send(self, message: bytes) -> None:
        """Queues a message; waits while the window is full. Raises PsError if the stream has ended."""
        self._room.get()
        if self._ended:
            self._room.put(None)
            raise self._error()
        self._outbox.put(message)

    def read_ahead(self) -> None:
        """Reads the next message in a thread of its own, for `peek` to show; the next read takes it.

        Goes on behind an answer that says nothing of any push: a request for what is kept back, or a bare position.
        gRPC does not tell whether a message has come otherwise than by waiting for it. The thread ends with the stream.
        """
        if self._ahead and not _says_nothing(self._shown()):
            return
        self._ahead.append(Future())
        threading.Thread(target=self._fetch, args=(self._ahead[-1],), name="read-ahead", daemon=True).start()

    def _fetch(self, ahead: Future[bytes]) -> None:
        try:
            ahead.set_result(next(self._call))
        except BaseException as error:  # whatever it is, it is raised where the message is read
            ahead.set_exception(error)

    def peek(self) -> wire.Answer | None:
        """Returns the last answer that was read ahead, None while its beginning is not here. Never waits or raises."""
        response = self._shown()
        return response.answer if response is not None and response.HasField("answer") else None

    def _shown(self) -> wire.PushPullResponse | None:
        ahead = self._ahead[-1] if self._ahead else None
        if ahead is None or not ahead.done() or ahead.exception() is not None:
            return None
        try:
            return detach_chunk(wire.PushPullResponse, ahead.result())[0]
        except ValueError:  # whoever reads it says so
            return None

    def read_answer(
        self,
        layout: Layout,
        destinations: Sequence[Bytes],
        begins: Callable[[], None] = lambda: None,
        rows: Receiver | None = None,
    ) -> wire.Answer:
        """Waits for the next answer, writing its release chunk by chunk into the destinations.

        `layout` is the form in which values of this shard are released, with one destination per block. `begins` is
        called when the first message of the answer is here; `rows` takes what follows the image, in a job with tables.
        After an error the destinations may be half written. Raises PsError when the stream ends and Corrupt for bytes
        that are not what they should be.
        """
        response, chunk = self._read()
        begins()
        if not response.HasField("answer"):
            raise Corrupt(f"{self.address}: a message of an answer before its `answer`")
        answer = response.answer
        total = answer.release.total_bytes if answer.HasField("release") else 0
        expected = layout.total_bytes + (rows.begin(answer.release.rows, self.address) if rows is not None else 0)
        if total != expected and answer.HasField("release"):
            raise Corrupt(f"{self.address}: the release has {total} bytes instead of {expected}")
        received = take_chunk(chunk, 0, layout, destinations, self.address, behind=rows, total=total)
        while not response.end:
            response, chunk = self._read()
            received = take_chunk(chunk, received, layout, destinations, self.address, behind=rows, total=total)
        if received != total:
            raise Corrupt(f"{self.address}: the answer has {received} of {total} bytes")
        return answer

    def read_image(self, layout: Layout, destinations: Sequence[Bytes], total: int) -> None:
        """Waits for an image of `total` bytes that follows `attached`; as `read_answer` otherwise."""
        if total != layout.total_bytes:
            raise Corrupt(f"{self.address}: {total} bytes were kept back instead of {layout.total_bytes}")
        received, ended = 0, False
        while not ended:
            response, chunk = self._read()
            received = take_chunk(chunk, received, layout, destinations, self.address)
            ended = response.end
        if received != total:
            raise Corrupt(f"{self.address}: of what was kept back there are {received} of {total} bytes")

    def _read(self) -> tuple[wire.PushPullResponse, ChunkView | None]:
        ahead = self._ahead.popleft() if self._ahead else None
        try:
            return detach_chunk(wire.PushPullResponse, next(self._call) if ahead is None else ahead.result())
        except StopIteration:
            raise self._error() from None
        except grpc.RpcError as error:
            raise self._expired or from_rpc_error(error, self.address) from None
        except ValueError as error:
            raise Corrupt(f"{self.address}: {error}") from None

    def _error(self) -> PsError:
        return self.failure() or PeerLost(f"{self.address}: the stream is closed")

    def failure(self) -> PsError | None:
        """Returns why the stream ended; None while it is open and when this side closed it."""
        if not self._ended or self._closed:
            return None
        if self._expired is not None:
            return self._expired
        if self._call.code() is grpc.StatusCode.OK:
            return PeerLost(f"{self.address}: the shard closed the stream")
        return from_rpc_error(self._call, self.address)

    def close(self) -> None:
        """Ends the stream, now; a thread that reads or sends gets PeerLost."""
        self._closed = self._closed or not self._ended
        self._call.cancel()


def _says_nothing(response: wire.PushPullResponse | None) -> bool:
    """Whether it is a whole answer with neither the outcome of a push, nor values, nor the end of the job."""
    if response is None or not response.HasField("answer") or not response.end:
        return False
    return not any(response.answer.HasField(name) for name in ("result", "release", "done"))
