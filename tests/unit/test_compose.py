"""compose.yaml: what stands in it is taken by our own commands."""

from __future__ import annotations

import pytest
from manifests import read, services, words


@pytest.mark.parametrize("name", ["ps", "worker-0", "worker-1", "client"])
def test_compose_commands_are_taken_by_what_they_start(name: str) -> None:
    flags = read(words(services()[name]))
    assert flags["ps"] == ("ps:2222" if name != "ps" else None)


def test_compose_is_one_shard_two_workers_and_a_client_with_cores_of_their_own() -> None:
    found = services()
    assert list(found) == ["certs", "ps", "worker-0", "worker-1", "client"]
    assert [found[name]["cpuset"] for name in ("worker-0", "worker-1")] == ["0", "1"]
    assert [read(words(found[f"worker-{index}"]))["index"] for index in (0, 1)] == [0, 1]
    test = found["ps"]["healthcheck"]["test"]
    assert test[0] == "CMD"
    assert read(test[1:])["ps"] == "ps:2222"
    known = set(found)
    for service in found.values():
        assert set(service.get("depends_on", {})) <= known
