"""The port where Prometheus reads a shard's figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.registry import Collector

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.psserver.binding import bracketed

_PATHS = ("/", "/metrics")


def _figures_alone(app: Any) -> Any:
    """Returns a WSGI app that has nothing but the figures: the library's own gives them under any path."""

    def answer(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") in _PATHS:
            return app(environ, start_response)  # type: ignore[no-any-return]
        start_response("404 Not Found", [("Content-Type", "text/plain")])
        return [b"the figures are at /metrics\n"]

    return answer


class MetricsServer:
    """Serves the figures of a collector, and those of this process, over HTTP in threads of its own.

    Nothing protects it but its address: whoever reaches that may read, and nobody can change anything.

    Attributes:
        url: for Prometheus.
    """

    def __init__(self, host: str, port: int, *collectors: Collector) -> None:
        """Opens the port; 0 picks one.

        Raises:
            UsageError: it cannot be had.
        """
        # Not the library's global one: a process may have several shards, and there what others count stands too.
        registry = CollectorRegistry()
        for collector in collectors:
            registry.register(collector)
        # Resident memory, processor time, open files: `process_...`, as all of Prometheus' libraries name them.
        ProcessCollector(registry=registry)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
            raise UsageError(f"--metrics-port {port}: {bracketed(host)}:{port} cannot be had: {why}") from error
        self._server.set_app(_figures_alone(self._server.get_app()))
        self.url = f"http://{bracketed(host)}:{self._server.server_port}/metrics"

    def close(self) -> None:
        """Closes the port; blocks up to half a second."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
