"""The Helm chart: rendered with many values, valid for Kubernetes, and hardened in every pod."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands

from tests.services import find_helm
from tests.sources import PROJECT
from ttsweb.configuration.env import SETTINGS
from ttsweb.pages.health import _CHECKS
from ttsweb.work import ROLES
from workers.local.children import STOP_MARGIN_SECONDS
from workers.local.site import WEB_GRACE_SECONDS
from workers.process.run_worker import HAND_BACK_SECONDS, LAST_OBJECTS_SECONDS

CHART = PROJECT / "deploy" / "helm" / "ttsweb"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
USUAL = ("secrets.existingSecret=ttsweb", "storage.bucket=s3://tts/prod?region=eu-1")
DIGEST = "a" * 64
WEIGHTS = (
    "weights.enabled=true", "weights.declaredUse=research", "weights.declaredBy=Ada",
    f"weights.sha256.codec\\.pth={DIGEST}",
)  # fmt: skip
# Each of them is rendered, checked against Kubernetes' own schemas, and held to all rules below.
CASES: dict[str, tuple[str, ...]] = {
    "usual": USUAL,
    "claim": ("secrets.existingSecret=ttsweb", "storage.existingClaim=media"),
    "keda": (*USUAL, "keda.enabled=true", "keda.connectionSecret.name=queue"),
    "weights": (*USUAL, *WEIGHTS),
    "weights in a claim": (*USUAL, *WEIGHTS, "weights.existingClaim=weights"),
    "all": (
        *USUAL, *WEIGHTS, "keda.enabled=true", "ingress.enabled=true", "ingress.host=tts.example",
        "ingress.tlsSecret=tls", "ingress.className=nginx", "image.pullSecrets[0]=pull",
        f"image.web.digest=sha256:{DIGEST}", "gpuWorker.runtimeClassName=nvidia",
        "gpuWorker.nodeSelector.pool=gpu", "secrets.s3ExistingSecret=s3", "weights.hubSecret=hub",
        "settings.TTS_RETENTION_DAYS=90", "gpuWorker.idleUnloadSeconds=600",
        "networkPolicy.webFrom[0].namespaceSelector.matchLabels.name=ingress",
        "networkPolicy.extraEgress[0].to[0].ipBlock.cidr=10.0.0.0/8",
    ),
    "without a GPU": (*USUAL, "gpuWorker.device.count=0"),
    "files alone": (*USUAL, "gpuWorker.enabled=false", "podDisruptionBudget.enabled=false",
                    "networkPolicy.enabled=false", "serviceAccount.create=false"),
}  # fmt: skip
_rendered: dict[str, list[dict[str, Any]]] = {}

pytestmark = pytest.mark.helm


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([find_helm() or "helm", *arguments], capture_output=True, text=True)


def template(*given: str) -> subprocess.CompletedProcess[str]:
    sets = [part for one in given for part in ("--set", one)]
    return helm("template", "r", str(CHART), "--namespace", "speech", *sets)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """The objects of one case."""
    return objects(request.param)


def objects(case: str) -> list[dict[str, Any]]:
    if case not in _rendered:
        made = template(*CASES[case])
        assert made.returncode == 0, made.stderr
        _rendered[case] = [one for one in yaml.safe_load_all(made.stdout) if one]
    return _rendered[case]


def find(case: str, kind: str, name: str) -> dict[str, Any]:
    [found] = [
        one for one in objects(case)
        if (one["kind"], one["metadata"]["name"]) == (kind, f"r-ttsweb{name}")
    ]  # fmt: skip
    return found


def pods(found: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in found:
        if one["kind"] in ("Deployment", "Job"):
            yield one["metadata"]["name"], one["spec"]["template"]


def containers(found: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for _, pod in pods(found):
        for one in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            yield pod["spec"], one


def env_of(container: dict[str, Any]) -> dict[str, Any]:
    entries = container.get("env", ())
    names = [entry["name"] for entry in entries]
    assert len(set(names)) == len(names)
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries}


def test_lint_finds_nothing() -> None:
    sets = [part for one in CASES["all"] for part in ("--set", one)]
    linted = helm("lint", str(CHART), "--strict", *sets)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_every_object_is_one_that_kubernetes_takes(case: list[dict[str, Any]]) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in case]
    assert len(set(names)) == len(names)
    for one in case:
        if not one["apiVersion"].startswith("keda.sh/"):
            kubernetes_validate.validate(one, "1.32", strict=True)


def test_kubeconform_agrees_where_it_is_installed() -> None:
    program = shutil.which("kubeconform")
    if program is None:
        pytest.skip("kubeconform: no such program was found")
    for given in CASES.values():
        command = [program, "-strict", "-ignore-missing-schemas"]
        text = template(*given).stdout
        checked = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_no_pod_has_a_right_that_it_does_not_need(case: list[dict[str, Any]]) -> None:
    for _, pod in pods(case):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        context = spec["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] == 10001
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for _, container in containers(case):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"] and container["resources"]["requests"]


def test_what_is_written_lies_in_volumes_of_the_pod(case: list[dict[str, Any]]) -> None:
    for spec, container in containers(case):
        volumes = {one["name"] for one in spec["volumes"]}
        mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
        assert {one["name"] for one in mounts.values()} <= volumes
        env = env_of(container)
        if container["name"] == "check-weights":
            assert all(one["readOnly"] for one in mounts.values())
            continue
        assert {env["TTS_DATA_DIR"], "/tmp"} <= set(mounts)
        if env.get("TTS_STORAGE", "").startswith("/"):
            assert env["TTS_STORAGE"] in mounts
        if "TTS_CHECKPOINT" in env:
            assert mounts["/data/models"]["readOnly"]


def test_commands_and_settings_are_those_of_the_product(case: list[dict[str, Any]]) -> None:
    commands = get_commands()
    for _, container in containers(case):
        env, command = env_of(container), container["command"]
        assert {name for name in env if name.startswith("TTS_")} <= set(SETTINGS)
        if command[:2] != ["python", "manage.py"]:
            assert container["name"] == "check-weights"
            continue
        assert command[2] in commands
        for probe in ("startupProbe", "livenessProbe"):
            if "exec" in container.get(probe, ()):
                asked = container[probe]["exec"]["command"]
                assert asked[2:4] == ["worker_alive", "--role"]
                assert asked[4] == command[4] and command[4] in ROLES
    for name in ("TTS_SECRET_KEY", "TTS_DATABASE_URL", "TTS_REDIS_URL"):
        for _, container in containers(case):
            value = env_of(container).get(name)
            assert value is None or value == {"secretKeyRef": {"name": "ttsweb", "key": name}}


def test_each_selector_finds_its_pods_and_no_others(case: list[dict[str, Any]]) -> None:
    labelled = {name: pod["metadata"]["labels"] for name, pod in pods(case)}

    def found(selector: dict[str, str]) -> set[str]:
        return {name for name, labels in labelled.items() if selector.items() <= labels.items()}

    for one in case:
        name, spec = one["metadata"]["name"], one.get("spec", {})
        if one["kind"] == "Deployment":
            assert found(spec["selector"]["matchLabels"]) == {name}
        elif one["kind"] == "Service":
            assert found(spec["selector"]) == {"r-ttsweb-web"}
        elif one["kind"] == "PodDisruptionBudget":
            assert found(spec["selector"]["matchLabels"]) == {name}
            assert spec["maxUnavailable"] == 1
    policies = [one["spec"] for one in case if one["kind"] == "NetworkPolicy"]
    if policies:  # every pod is under one
        covered = [found(policy["podSelector"]["matchLabels"]) for policy in policies]
        assert set().union(*covered) == set(labelled)
        assert all(policy["policyTypes"] == ["Ingress", "Egress"] for policy in policies)


def test_only_the_site_is_called_and_calls_are_for_what_the_product_needs() -> None:
    for part in ("web", "gpu-worker", "cpu-worker", "jobs"):
        spec = find("usual", "NetworkPolicy", f"-{part}")["spec"]
        assert bool(spec["ingress"]) == (part == "web")
        ports = {one["port"] for rule in spec["egress"] for one in rule["ports"]}
        assert ports >= {53, 5432, 6379, 443}
        assert (80 in ports) == (part == "cpu-worker")
    web = find("all", "NetworkPolicy", "-web")["spec"]
    assert web["ingress"][0]["from"][0]["namespaceSelector"] == {"matchLabels": {"name": "ingress"}}
    assert web["egress"][-1]["to"][0]["ipBlock"]["cidr"] == "10.0.0.0/8"


def test_grace_is_above_the_drain_and_what_follows_it(case: list[dict[str, Any]]) -> None:
    worker = settings.DRAIN_SECONDS + HAND_BACK_SECONDS + LAST_OBJECTS_SECONDS + STOP_MARGIN_SECONDS
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    for one in case:
        if one["kind"] != "Deployment":
            continue
        grace = one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        if one["metadata"]["name"].endswith("-worker"):
            assert grace > worker + 10
        else:
            [container] = one["spec"]["template"]["spec"]["containers"]
            pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
            # Its children get as long as a drain before they are killed.
            assert grace > pause + WEB_GRACE_SECONDS + settings.DRAIN_SECONDS + STOP_MARGIN_SECONDS
    for name in ("gpuWorker", "cpuWorker"):
        least = schema["properties"][name]["properties"]["terminationGracePeriodSeconds"]["minimum"]
        assert least > worker


def test_workers_are_named_by_their_pods_and_get_a_device() -> None:
    for role in ("gpu", "cpu"):
        spec = find("usual", "Deployment", f"-{role}-worker")["spec"]["template"]["spec"]
        [container] = spec["containers"]
        named = {"fieldRef": {"fieldPath": "metadata.name"}}
        assert env_of(container)["TTS_WORKER_NAME"] == named
        limits = container["resources"]["limits"]
        assert limits.get("nvidia.com/gpu") == (1 if role == "gpu" else None)
    spec = find("without a GPU", "Deployment", "-gpu-worker")["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert env_of(container)["TTS_DEVICE"] == "cpu"


def test_site_gets_requests_while_there_is_no_worker() -> None:
    [web] = find("usual", "Deployment", "-web")["spec"]["template"]["spec"]["containers"]
    path, _, query = web["readinessProbe"]["httpGet"]["path"].partition("?parts=")
    assert path == "/readyz"
    assert set(query.split(",")) < set(_CHECKS) - {"worker"}
    assert web["livenessProbe"]["httpGet"]["path"] == "/healthz"
    hosts = env_of(web)["TTS_ALLOWED_HOSTS"].split(",")
    assert {"r-ttsweb", "r-ttsweb.speech"} <= set(hosts) and "tts.example" not in hosts
    [web] = find("all", "Deployment", "-web")["spec"]["template"]["spec"]["containers"]
    assert "tts.example" in env_of(web)["TTS_ALLOWED_HOSTS"].split(",")
    assert env_of(web)["TTS_BEHIND_HTTPS_PROXY"] == "true"
    assert web["image"] == f"ttsweb-web@sha256:{DIGEST}"


def test_tables_are_made_before_anything_of_a_new_version_starts() -> None:
    job = find("usual", "Job", "-migrations")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    spec = job["spec"]["template"]["spec"]
    assert "serviceAccountName" not in spec  # the chart's account is made after the hooks
    assert spec["containers"][0]["command"][2:] == ["migrate", "--no-input"]


@pytest.mark.parametrize("where", ["weights", "weights in a claim"])
def test_weights_are_pulled_and_their_digests_checked_before_a_worker_reads_them(
    where: str, tmp_path: Path
) -> None:
    worker = find(where, "Deployment", "-gpu-worker")["spec"]["template"]["spec"]
    if where == "weights":
        pull, check = worker["initContainers"]
    else:
        assert "initContainers" not in worker
        job = find(where, "Job", "-weights")
        assert int(job["metadata"]["annotations"]["helm.sh/hook-weight"]) > 0
        [pull] = job["spec"]["template"]["spec"]["initContainers"]
        [check] = job["spec"]["template"]["spec"]["containers"]
    assert pull["command"][2:] == [
        "models", "pull", "s2-pro", "--to=/data/models/s2-pro",
        "--yes-i-accept-the-research-licence", "--declared-by=Ada",
    ]  # fmt: skip
    assert env_of(worker["containers"][0])["TTS_CHECKPOINT"] == check["workingDir"]

    # The check itself, as the pod runs it: on the published bytes, then on others.
    (tmp_path / "codec.pth").write_bytes(b"the weights")
    made = subprocess.run(
        ["sha256sum", "codec.pth"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    sums = env_of(check)["SUMS"].replace(DIGEST, made.stdout.split()[0])
    codes = []
    for content in (b"the weights", b"other weights"):
        (tmp_path / "codec.pth").write_bytes(content)
        checked = subprocess.run(check["command"], cwd=tmp_path, env={"SUMS": sums}, check=False)
        codes.append(checked.returncode)
    assert codes == [0, 1]


@pytest.mark.parametrize("role", ["gpu", "cpu"])
def test_keda_asks_the_view_and_scales_what_is_there(role: str) -> None:
    scaled = find("keda", "ScaledObject", f"-{role}-worker")["spec"]
    target = find("keda", "Deployment", f"-{role}-worker")
    assert scaled["scaleTargetRef"] == {"name": target["metadata"]["name"]}
    assert "replicas" not in target["spec"]  # an upgrade would set it back
    assert scaled["minReplicaCount"] == (0 if role == "gpu" else 1)
    [trigger] = scaled["triggers"]
    assert trigger["type"] == "postgresql"
    assert trigger["metadata"] == {
        "query": f"SELECT COALESCE(SUM(waiting + held), 0) FROM tts_queue WHERE role = '{role}'",
        "targetQueryValue": "64" if role == "gpu" else "16",
        "activationTargetQueryValue": "0",
    }
    assert trigger["authenticationRef"] == {"name": "r-ttsweb-queue"}
    auth = find("keda", "TriggerAuthentication", "-queue")["spec"]
    assert auth["secretTargetRef"][0]["parameter"] == "connection"

    [trigger] = find("all", "ScaledObject", f"-{role}-worker")["spec"]["triggers"]
    assert trigger["metadata"]["connectionFromEnv"] == "TTS_DATABASE_URL"
    [container] = find("all", "Deployment", f"-{role}-worker")["spec"]["template"]["spec"][
        "containers"
    ]
    assert "TTS_DATABASE_URL" in env_of(container)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "secrets.existingSecret: name a Secret"),
        (USUAL[:1], "storage: name a bucket or an existingClaim"),
        ((*USUAL, "storage.existingClaim=m"), "not both"),
        ((*USUAL, "weights.enabled=true"), "weights.declaredUse: say research or written-licence"),
        ((*USUAL, "ingress.enabled=true"), "ingress.host: name the host"),
        ((*USUAL, "gpuWorker.terminationGracePeriodSeconds=20"), "terminationGracePeriodSeconds"),
        ((*USUAL, "web.replica=3"), "replica"),
        ((*USUAL, "settings.TTS_WORKER_NAME=x"), "settings"),
        ((*USUAL, "image.web.digest=latest"), "digest"),
    ],
)
def test_wrong_values_are_refused_with_what_is_missing(given: tuple[str, ...], words: str) -> None:
    made = template(*given)
    assert made.returncode != 0
    assert words in made.stderr


def test_values_of_a_file_reach_the_pods_as_they_stand(tmp_path: Path) -> None:
    """Helm reads the numbers of a file as floating-point ones, other than those of --set."""
    settings = {
        "TTS_MAX_BOOK_BYTES": 100_000_000, "TTS_RETENTION_DAYS": 0.25, "TTS_ENGINE_SLOTS": 16,
        "TTS_URL_REFERENCES": True, "TTS_BEHIND_HTTPS_PROXY": "true",
    }  # fmt: skip
    values = {
        "secrets": {"existingSecret": "ttsweb"}, "storage": {"existingClaim": "media"},
        "settings": settings, "keda": {"enabled": True, "gpuWorker": {"rowsPerReplica": 2_000_000}},
        "ingress": {"enabled": True, "host": "tts.example", "tlsSecret": "tls"},
        "weights": {"enabled": True, "declaredUse": "research", "declaredBy": 'Ada "of": B # 1'},
    }  # fmt: skip
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    made = helm("template", "r", str(CHART), "--values", str(tmp_path / "values.yaml"))
    assert made.returncode == 0, made.stderr
    found = [one for one in yaml.safe_load_all(made.stdout) if one]

    shown = {name: str(value).lower() for name, value in settings.items()}
    for _, container in containers(found):
        env = env_of(container)  # in which no name stands twice
        assert container["name"] == "pull-weights" or env.items() >= shown.items()
    scaled = {one["metadata"]["name"]: one for one in found if one["kind"] == "ScaledObject"}
    [trigger] = scaled["r-ttsweb-gpu-worker"]["spec"]["triggers"]
    assert trigger["metadata"]["targetQueryValue"] == "2000000"
    [pull] = [one for _, one in containers(found) if one["name"] == "pull-weights"]
    assert pull["command"][-1] == '--declared-by=Ada "of": B # 1'


def test_schema_knows_every_value_and_takes_the_defaults() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    jsonschema.validate(VALUES, schema)

    def check(values: dict[str, Any], part: dict[str, Any], path: str) -> None:
        if "properties" not in part:
            return
        assert set(part["properties"]) - {"global"} == set(values), path
        for name, value in values.items():
            if isinstance(value, dict):
                check(value, part["properties"][name], f"{path}.{name}")

    optional = json.loads(json.dumps(VALUES))
    check(optional, schema, "values")


def test_notes_name_what_to_do_next(tmp_path: Path) -> None:
    # Helm shows them where a cluster answers; as the text of an object it shows them here too.
    chart = shutil.copytree(CHART, tmp_path / "chart")
    notes = (chart / "templates" / "NOTES.txt").rename(chart / "templates" / "notes.yaml")
    name, *lines = notes.read_text().splitlines()
    notes.write_text(f"{name}\nnotes: |\n" + "".join(f"  {line}\n" for line in lines))
    sets = [part for one in CASES["all"] for part in ("--set", one)]
    shown = ("--namespace", "speech", "--show-only", "templates/notes.yaml")
    made = helm("template", "r", str(chart), *shown, *sets)

    assert made.returncode == 0, made.stderr
    text = yaml.safe_load(made.stdout)["notes"]
    assert "https://tts.example/" in text
    line = next(line for line in text.splitlines() if "createsuperuser" in line)
    assert shlex.split(line)[:5] == ["kubectl", "-n", "speech", "exec", "-it"]
    assert "deploy/r-ttsweb-web" in line
