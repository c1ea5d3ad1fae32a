"""Every error crosses the wire as itself."""

from __future__ import annotations

import re
from concurrent import futures

import grpc
import pytest

from grpc_ps.client.shared import errors
from grpc_ps.client.shared.errors import JobFailed, PsError, error_classes, from_rpc_error, trailing_metadata


class FakeRpcError(grpc.RpcError):
    """What a failed call raises: status, details and trailing metadata."""

    def __init__(self, code: grpc.StatusCode, details: str | None, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._parts = (code, details, metadata)

    def code(self) -> grpc.StatusCode:
        return self._parts[0]

    def details(self) -> str | None:
        return self._parts[1]

    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._parts[2]


@pytest.mark.parametrize("cls", error_classes().values(), ids=lambda cls: cls.__name__)
def test_every_class_round_trips(cls: type[PsError]) -> None:
    error = cls("shard 1: expected (3, 2), got (2, 3)")
    received = from_rpc_error(FakeRpcError(error.status, str(error), trailing_metadata(error)), "127.0.0.1:2222")
    assert type(received) is cls
    assert str(received) == str(error)
    assert received.exit_code == cls.exit_code


def test_exit_code_of_a_failed_job_crosses_the_wire() -> None:
    error = JobFailed("parameter w is not finite", exit_code=5)
    received = from_rpc_error(FakeRpcError(error.status, str(error), trailing_metadata(error)), "a:1")
    assert (type(received), received.exit_code) == (JobFailed, 5)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    listed = dict(re.findall(r"^      (\w+) +(\d)  ", errors.__doc__ or "", re.MULTILINE))
    assert listed == {cls.__name__: str(cls.exit_code) for cls in error_classes().values()}
    assert len({cls.reason for cls in error_classes().values()}) == len(error_classes()) == len(listed)


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.PeerUnreachable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.PeerLost),
        (grpc.StatusCode.CANCELLED, errors.PeerLost),
        (grpc.StatusCode.UNIMPLEMENTED, errors.Mismatch),
        (grpc.StatusCode.UNAUTHENTICATED, errors.Unauthenticated),
        (grpc.StatusCode.PERMISSION_DENIED, errors.Forbidden),
        (grpc.StatusCode.UNKNOWN, errors.JobFailed),
    ],
)
def test_status_without_reason_names_the_address(code: grpc.StatusCode, cls: type[PsError]) -> None:
    received = from_rpc_error(FakeRpcError(code, None), "10.0.0.1:2222")
    assert type(received) is cls
    says = {
        grpc.StatusCode.DEADLINE_EXCEEDED: "no answer in time (is its process stopped, or a link cut?)",
        grpc.StatusCode.UNIMPLEMENTED: "speaks gRPC, and is no psserver of this version: mend the list in --ps",
    }
    assert str(received).startswith(f"10.0.0.1:2222: {says.get(code, code.name)}")


def test_refusal_of_a_real_server_is_its_class() -> None:
    def refuse(_: bytes, context: grpc.ServicerContext) -> bytes:
        error = errors.Mismatch("steps: job has 20, worker states 30 - ürgh")
        context.set_trailing_metadata(trailing_metadata(error))
        context.abort(error.status, str(error))
        return b""

    server = grpc.server(futures.ThreadPoolExecutor(1))
    handler = grpc.method_handlers_generic_handler("S", {"M": grpc.unary_unary_rpc_method_handler(refuse)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}", (("grpc.enable_http_proxy", 0),)) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/S/M")(b"", timeout=10)
        received = from_rpc_error(caught.value, "here")
    server.stop(None)
    assert type(received) is errors.Mismatch
    assert str(received) == "steps: job has 20, worker states 30 - ürgh"


def test_a_stream_that_was_removed_is_a_lost_peer() -> None:
    """gRPC gives a connection that breaks under a message this status at times."""
    error = from_rpc_error(FakeRpcError(grpc.StatusCode.UNKNOWN, "Stream removed"), "a:1")
    assert type(error) is errors.PeerLost
    assert str(error) == "a:1: Stream removed"


_CONNECTING = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:2222: "
_VERIFYING = f"{_CONNECTING}Tls handshake failed: OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: "


@pytest.mark.parametrize(
    ("details", "cls", "says"),
    [
        (f"{_VERIFYING}certificate has expired: OK", errors.Untrusted, "its certificate has expired"),
        (f"{_VERIFYING}certificate is not yet valid: OK", errors.Untrusted, "its certificate is not valid yet"),
        (f"{_VERIFYING}unable to get local issuer certificate", errors.Untrusted, "not by an authority of --tls-ca"),
        (f"{_VERIFYING}invalid CA certificate: OK", errors.Untrusted, "is not accepted: invalid CA certificate"),
        (f"{_CONNECTING}Hostname Verification Check failed.", errors.Untrusted, "its certificate is for another name"),
        (f"{_CONNECTING}OPENSSL_internal:WRONG_VERSION_NUMBER", errors.Untrusted, "it does not speak TLS"),
        (f"{_CONNECTING}Socket closed", errors.PeerUnreachable, "does it want TLS, --tls-ca"),
        (f"{_CONNECTING}Secure read failed (Socket closed)", errors.PeerUnreachable, "want a client's certificate"),
        (f"{_CONNECTING}recvmsg:Connection reset by peer (104)", errors.PeerUnreachable, "does it want TLS, --tls-ca"),
        (f"{_CONNECTING}Connection refused (111)", errors.PeerUnreachable, "nothing answers there"),
        (f"{_CONNECTING}Failed parsing HTTP/2 (Expected SETTINGS)", errors.PeerUnreachable, "that is no psserver"),
        ("Received http2 header with status: 502", errors.PeerUnreachable, "that is no psserver"),
        (f"{_CONNECTING}timed out before receiving SETTINGS frame", errors.PeerUnreachable, "and says nothing"),
        ("errors resolving a: Domain name not found", errors.PeerUnreachable, "its host cannot be resolved"),
        ("Socket closed", errors.PeerUnreachable, "Socket closed"),
    ],
)
def test_what_grpc_says_of_a_handshake_is_said_in_one_clause(details: str, cls: type[PsError], says: str) -> None:
    received = from_rpc_error(FakeRpcError(grpc.StatusCode.UNAVAILABLE, details), "10.0.0.1:2222")
    assert type(received) is cls
    assert str(received).startswith("10.0.0.1:2222: ")
    assert says in str(received)
