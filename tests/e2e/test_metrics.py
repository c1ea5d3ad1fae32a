"""--metrics-port as a user types it."""

from __future__ import annotations

import pytest
from commands import Command
from scraping import scraped

pytestmark = pytest.mark.e2e


def test_a_shard_says_where_its_figures_are_before_it_is_ready() -> None:
    with Command("psserver", "--shard", 0, "--shards", 2, "--port", 0, "--metrics-port", 0) as shard:
        shard.until(r"^READY shard=0 ")
        url = next(line for line in shard.lines if line.startswith("METRICS ")).removeprefix("METRICS shard=0 url=")
        assert url.startswith("http://127.0.0.1:")
        told = scraped(url)
    # It may be importing TensorFlow for longer than a scrape waits.
    assert "grpc_ps_responsive" in told
    if told["grpc_ps_responsive"]:
        assert told["grpc_ps_connected_shards"] == 1
