"""Dockerfile and kubernetes.yaml: what stands in them is valid, and taken by our own commands."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest
from manifests import ROOT, container, read, resources

SHARDS, WORKERS = "StatefulSet", "Job"
SECRETS = ("grpc-ps-shards", "grpc-ps-workers")
# The oldest and a newer one that kubernetes-validate has.
VERSIONS = ("1.28.0", "1.34.0")


def resource(kind: str) -> dict[str, Any]:
    (found,) = (each for each in resources() if each["kind"] == kind)
    return found


@pytest.mark.skipif(importlib.util.find_spec("kubernetes_validate") is None, reason="needs kubernetes-validate")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_are_what_kubernetes_takes(version: str) -> None:
    import kubernetes_validate

    for each in resources():
        kubernetes_validate.validate(each, version, strict=True)
    broken = {**resource(SHARDS), "spek": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def flags_of(kind: str, **values: str) -> dict[str, Any]:
    """The flags of a container, its variables replaced as Kubernetes does."""
    args: list[str] = container(resource(kind))["args"]
    for name, value in values.items():
        args = [word.replace(f"$({name})", value) for word in args]
    assert not any("$(" in word for word in args)
    assert {each["name"] for each in container(resource(kind))["env"]} == set(values)
    return read(args)


def test_kubernetes_starts_as_many_shards_as_the_flags_say() -> None:
    shards = resource(SHARDS)
    name, service = shards["metadata"]["name"], shards["spec"]["serviceName"]
    assert resource("Service")["metadata"]["name"] == service
    addresses = [f"{name}-{number}.{service}:2222" for number in range(shards["spec"]["replicas"])]
    for number in range(len(addresses)):
        flags = flags_of(SHARDS, SHARD=str(number))
        assert (flags["shard"], flags["shards"], flags["lead"]) == (number, len(addresses), addresses[0])
    assert flags_of(WORKERS, INDEX="2")["ps"].split(",") == addresses


def test_all_shards_have_one_folder_of_checkpoints() -> None:
    """A volume for each of them would not do: the lead refuses a shard that has another folder."""
    flags, claim = flags_of(SHARDS, SHARD="1"), resource("PersistentVolumeClaim")
    assert flags["checkpoint_secs"] > 0
    assert flags["recovery_timeout"] > 120, "a pod that is moved takes a while"
    pod = resource(SHARDS)["spec"]["template"]["spec"]
    (volume,) = [each for each in pod["volumes"] if "persistentVolumeClaim" in each]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    (mount,) = [each for each in container(resource(SHARDS))["volumeMounts"] if each["name"] == volume["name"]]
    assert (mount["mountPath"], mount.get("readOnly", False)) == (str(flags["checkpoint_dir"]), False)
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert "volumeClaimTemplates" not in resource(SHARDS)["spec"]
    # The user of the image may write there.
    assert pod["securityContext"]["fsGroup"] == 1000
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert f" {mount['mountPath']} " in text


def test_workers_have_one_index_each() -> None:
    job = resource(WORKERS)["spec"]
    assert job["completionMode"] == "Indexed"
    assert job["parallelism"] == job["completions"]
    assert flags_of(WORKERS, INDEX="2")["index"] == 2


@pytest.mark.parametrize(("kind", "values"), [(SHARDS, {"SHARD": "0"}), (WORKERS, {"INDEX": "0"})])
def test_pods_end_by_themselves_and_may_do_little(kind: str, values: dict[str, str]) -> None:
    pod = resource(kind)["spec"]["template"]["spec"]
    assert flags_of(kind, **values)["grace"] < pod["terminationGracePeriodSeconds"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    own = container(resource(kind))["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    mounted = {each["name"] for each in container(resource(kind))["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}


def test_the_probes_ask_the_port_that_the_shard_has() -> None:
    shard = container(resource(SHARDS))
    port = flags_of(SHARDS, SHARD="0")["port"]
    assert [each["containerPort"] for each in shard["ports"]] == [port]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        command = shard[probe]["exec"]["command"]
        assert command[:2] == ["psctl", "health"]
        assert read(command)["ps"] == f"localhost:{port}"


def test_the_files_of_the_secrets_are_those_that_are_made() -> None:
    """The comment at the top makes the secrets; the flags name their files."""
    text = (ROOT / "kubernetes.yaml").read_text(encoding="utf-8")
    parts = [text.partition(f"generic {name}")[2].partition("kubectl")[0] for name in SECRETS]
    # KEY=FILE names the file within the secret.
    made = [re.findall(r"--from-file=([\w.-]+)", part) for part in parts]
    for kind, files in zip((SHARDS, WORKERS), made, strict=True):
        used = set(re.findall(r"=/certs/([\w.-]+)", " ".join(container(resource(kind))["args"])))
        assert used == set(files)


def test_the_image_has_the_folders_that_are_installed_and_no_root() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    stages = re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]
    assert [stage.split()[0] for stage in stages] == ["python:3.12-slim", "python:3.12-slim"]
    copied = re.findall(r"^COPY (\w+) \1$", stages[0], re.MULTILINE)
    assert copied == ["client", "models", "protos", "psserver", "worker"]
    assert re.findall(r"^USER (\S+)$", stages[1], re.MULTILINE) == ["1000"]
    # What a change of any file leaves in the build cache.
    assert stages[0].index("needs.txt") < stages[0].index("README.md")
    # What the builder may see.
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == {*copied, "pyproject.toml", "README.md", "LICENSE"}
