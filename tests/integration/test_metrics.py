"""What Prometheus reads of a job that runs and saves, compared with what its worker did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from history import wait_for
from light_worker import scalar
from local_cluster import LocalCluster
from scraping import in_the_page, names_of, scraped

from grpc_ps.client import PSClient
from grpc_ps.client.shared.checkpoint_flags import CheckpointSettings

SPECS = [scalar("w"), scalar("v")]
ONE = {"w": np.ones((), np.float32), "v": np.ones((), np.float32)}


def saved(cluster: LocalCluster) -> None:
    """Waits until the lead tells of its first checkpoint."""
    wait_for(lambda: "grpc_ps_checkpoint_step" in scraped(cluster.servers[0].metrics_url), "the first checkpoint")


def test_the_figures_are_those_of_the_job(tmp_path: Path) -> None:
    checkpoints = CheckpointSettings(directory=tmp_path)
    presets = {"steps": 9, "learning_rate": 0.5}
    with LocalCluster(2, presets=presets, checkpoints=checkpoints, metrics_port=0) as cluster:
        with PSClient(cluster.addresses, timeout=20.0) as client:
            session = client.join("test", SPECS)
            session.open({name: np.zeros_like(value) for name, value in ONE.items()})
            reply = session.begin()
            for _ in range(4):
                session.send(ONE, 1)
                reply = session.wait()
            session.report(4, {"mse": 0.25})
            saved(cluster)
            # In this order: the follower has nothing that the lead has not.
            follower, lead = [scraped(server.metrics_url) for server in reversed(cluster.servers)]
            assert reply.global_step == lead["grpc_ps_global_step"] == 4
            session.leave()
        told = [lead, follower]
    assert lead['grpc_ps_pushes_total{outcome="applied",worker="0"}'] == 4
    assert lead['grpc_ps_pushes_total{outcome="late",worker="0"}'] == 0
    assert lead['grpc_ps_staleness_bucket{le="0"}'] == lead["grpc_ps_staleness_count"] == 4
    assert (lead["grpc_ps_learning_rate"], lead["grpc_ps_workers"], lead["grpc_ps_connected_shards"]) == (0.5, 1, 2)
    assert (lead['grpc_ps_phase{phase="running"}'], lead['grpc_ps_phase{phase="empty"}']) == (1, 0)
    assert (lead["grpc_ps_evaluation_step"], lead['grpc_ps_evaluation{metric="mse"}']) == (4, 0.25)
    assert (lead["grpc_ps_checkpoint_step"], lead["grpc_ps_checkpoint_failing"]) == (0, 0)
    assert (lead["grpc_ps_checkpoint_attempts_total"], lead["grpc_ps_rollbacks_total"]) == (1, 0)
    for one in told:
        assert (one["grpc_ps_updates_total"], one["grpc_ps_staged_pushes_total"]) == (4, 5)
        assert (one["grpc_ps_streams"], one["grpc_ps_staged_bytes"]) == (1, 64)
        assert min(one["grpc_ps_received_bytes_total"], one["grpc_ps_sent_bytes_total"]) > 0
        assert one['grpc_ps_work_seconds_total{phase="apply"}'] > 0
    assert sum(one["grpc_ps_blocks"] for one in told) == 2
    assert sum(one["grpc_ps_value_bytes"] for one in told) == 8
    assert lead["grpc_ps_log_position"] >= follower["grpc_ps_log_position"] > 0
    # Only a worker that has told its loss has one, and this job has no tables.
    missing = {"grpc_ps_worker_loss", "grpc_ps_table_rows", "grpc_ps_table_bytes"}
    assert in_the_page() - names_of(lead) == missing
    assert names_of(lead) | names_of(follower) <= in_the_page()
