"""The services of compose.yaml, started by hand as its commands say, on loopback in the place of its network."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ENDED, Command, ready, run
from manifests import Service, services, words
from ports import free_port

pytestmark = pytest.mark.e2e


def test_the_services_train_together(tmp_path: Path) -> None:
    """Certificates, a shard, two standing workers, and a client that sends a job: all as compose would start them."""
    found = services()
    port = str(free_port())

    def here(command: list[str]) -> list[str]:
        changed = {"/certs": str(tmp_path), "ps:2222": f"127.0.0.1:{port}", "0.0.0.0": "127.0.0.1", "2222": port}
        for old, new in changed.items():
            command = [word.replace(old, new) for word in command]
        return command

    def start(service: Service) -> Command:
        return Command(*here(words(service)))

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for _ in range(2):
        # The second time the volume has them already.
        certs = here(words(found["certs"]))
        subprocess.run(certs, env={**os.environ, "PATH": path}, check=True, timeout=60)
    assert (tmp_path / "worker.token").exists()
    with start(found["ps"]) as shard:
        assert ready(shard) == f"127.0.0.1:{port}"
        probe = here(found["ps"]["healthcheck"]["test"][1:])
        assert run(*probe).stdout == f"127.0.0.1:{port}: serving\n"
        with start(found["worker-0"]) as first, start(found["worker-1"]) as second, start(found["client"]) as client:
            assert client.wait() == 0, client.text + first.text + second.text + shard.text
            assert "global step 300" in client.text
            standing = (first, second, shard)
            assert [each.process.poll() for each in standing] == [None] * 3
            # As `docker compose down` does.
            for each in standing:
                each.process.send_signal(signal.SIGTERM)
            assert [each.wait(ENDED) for each in standing] == [143] * 3
