"""psctl health, which containers are probed with, and the cluster that TF_CONFIG names for psctl."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from local_cluster import LocalCluster
from ports import held_port
from secure_bed import Bed

from grpc_ps.client.commands.group import run
from grpc_ps.client.shared.errors import JobFailed


def test_shards_that_serve(capsys: pytest.CaptureFixture[str]) -> None:
    with LocalCluster(2) as cluster:
        assert run(["health", "--ps", cluster.addresses]) == 0
        first, second = cluster.addresses.split(",")
    assert capsys.readouterr().out == f"{first}: serving\n{second}: serving\n"


def test_nobody_there_is_exit_4() -> None:
    with held_port() as port, pytest.raises(JobFailed, match=f"127.0.0.1:{port}: ") as caught:
        run(["health", "--ps", f"127.0.0.1:{port}"])
    assert caught.value.exit_code == 4


def test_no_token_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bed = Bed()
    (tmp_path / "ca.pem").write_bytes(bed.ca)
    with LocalCluster(1, **bed.cluster()) as cluster:
        assert run(["health", "--ps", cluster.addresses, "--tls-ca", str(tmp_path / "ca.pem")]) == 0
        assert capsys.readouterr().out == f"{cluster.addresses}: serving\n"
        with pytest.raises(JobFailed) as caught:
            run(["health", "--ps", cluster.addresses])
    assert caught.value.exit_code == 4


def test_tf_config_names_the_cluster_where_no_flag_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with LocalCluster(2) as cluster:
        variable = {"cluster": {"ps": cluster.addresses.split(",")}, "task": {"type": "ps", "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(variable))
        for command in (["status", "--json"], ["health"], ["stop"]):
            assert run(command) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert json.loads(first)["phase"] == "empty"
    assert others[:2] == [f"{address}: serving" for address in variable["cluster"]["ps"]]
