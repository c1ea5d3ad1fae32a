"""Three hosts with addresses of their own, TLS and tokens, and a cable that is pulled while they train."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from commands import UNHURRIED, Command, ready, run
from network_hosts import Hosts

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(500),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has network namespaces"),
]

# Seconds for four processes to import TensorFlow at once, on two cores that have other work.
START = 200


class Cluster:
    """Shards on hosts 1 and 2, workers on 2 and 3; TF_CONFIG tells each process what it is."""

    def __init__(self, hosts: Hosts, certs: Path) -> None:
        self.shards = [f"{hosts.address(host)}:2222" for host in (1, 2)]
        self._hosts = hosts
        self._certs = certs
        self._trust = ("--tls-ca", certs / "ca.pem")
        names = ",".join(address.partition(":")[0] for address in self.shards)
        assert run("psctl", "certs", certs, "--hosts", names).returncode == 0

    def _within(self, host: int, task: str, index: int = 0) -> list[str]:
        members = {"ps": self.shards, "chief": ["10.77.0.2:1"], "worker": ["10.77.0.3:1"]}
        variable = json.dumps({"cluster": members, "task": {"type": task, "index": index}})
        return [*self._hosts.within(host), "env", f"TF_CONFIG={variable}"]

    def shard(self, number: int) -> Command:
        """A shard, on the host after its number, that takes a worker for lost after six seconds."""
        pair = ("--tls-cert", self._certs / "server.pem", "--tls-key", self._certs / "server-key.pem")
        flags = ("--host", self._hosts.address(number + 1), *self._trust, *pair, "--lease", 6)
        within = self._within(number + 1, "ps", number)
        return Command("psserver", *flags, "--token-file", self._certs / "tokens", within=within)

    def worker(self, host: int, task: str) -> Command:
        """A worker whose pushes take a while, of a job without end."""
        flags = ("--model", "linear", "--steps", 10**9, "--fault", UNHURRIED, "--json")
        token = ("--token-file", self._certs / "worker.token")
        return Command("worker", *flags, *self._trust, *token, within=self._within(host, task))

    def stop(self) -> None:
        """Ends the job, from the first host."""
        token = ("--token-file", self._certs / "admin.token")
        done = run("psctl", "stop", *self._trust, *token, within=self._within(1, "ps"))
        assert done.returncode == 0, done.stderr


def test_a_host_that_is_cut_off_comes_back_and_no_step_is_lost(tmp_path: Path) -> None:
    """Without host 3 the others go on after its worker's lease; when it is back that worker joins again and trains."""
    with Hosts(3) as hosts:
        cluster = Cluster(hosts, tmp_path / "certs")
        with cluster.shard(0) as lead, cluster.shard(1) as other:
            assert [ready(lead), ready(other)] == cluster.shards
            with cluster.worker(2, "chief") as stays, cluster.worker(3, "worker") as goes:
                goes.until("worker 1: global_step", START)
                hosts.cut(3)
                lead.until("worker_gone worker=1 ")
                stays.until("worker 0: global_step", after=len(stays.lines))
                hosts.heal(3)
                goes.until("joining_again")
                lead.until(r"joined worker=1 incarnation=\d+", after=lines_until(lead, "worker_gone"))
                goes.until("worker 1: global_step", after=lines_until(goes, "joining_again"))
                cluster.stop()
                codes = [each.wait() for each in (stays, goes, lead, other)]
                assert codes == [0] * 4, goes.text + stays.text + lead.text
                summaries = [each.summary() for each in (stays, goes)]
                (steps,) = {each["global_step"] for each in summaries}
                # Each update was somebody's push; that of one which was whole when the cable went is told to nobody.
                assert steps - 1 <= sum(each["outcomes"]["APPLIED"] for each in summaries) <= steps


def lines_until(command: Command, text: str) -> int:
    """How many lines there are up to that one."""
    return next(number for number, line in enumerate(command.lines, 1) if text in line)
