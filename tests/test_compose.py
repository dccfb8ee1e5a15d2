"""docker-compose.yml: the services, their commands, what they share and what they wait for."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import redis
import yaml
from django.core.management import get_commands
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from lab.servers import find_redis
from tests.compose_file import PROJECT, image_environment, render_compose
from tests.ttsweb.http.listeners import listening
from tests.workers.commands import free_port
from ttsweb.configuration.env import SETTINGS

TEXT = (PROJECT / "docker-compose.yml").read_text("utf-8")
DOCKERFILE = (PROJECT / "Dockerfile").read_text("utf-8")
STAGES = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.M | re.S))
FILE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES = FILE["services"]
COMMANDS = {  # as the documentation has them
    "web": ["serve", "--host", "0.0.0.0"],
    "gpu-worker": ["worker", "--role", "gpu"],
    "cpu-worker": ["worker", "--role", "cpu"],
}

# What the file says itself: where its services and volumes are within the containers.
OWN_SETTINGS = {"TTS_DATA_DIR", "TTS_DATABASE_URL", "TTS_REDIS_URL", "TTS_PORT"}


def closed(required: str = "", **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has no other members."""
    shape = {"type": "object", "additionalProperties": False, "required": required.split()}
    return shape | {"properties": properties}


# The part of the Compose format that the file uses; anything else is most likely a slip.
DURATION = {"type": "string", "pattern": "^[0-9]+(s|m)$"}
IMAGE = "[a-z0-9.:-]+@sha256:[0-9a-f]{64}"  # by its tag, for people, and by its bytes
TEXTS = {"type": "array", "items": {"type": "string"}}
SERVICE = closed(
    "image restart healthcheck read_only cap_drop security_opt tmpfs",
    image={
        "type": "string",
        "pattern": rf"^([a-z-]+:[0-9a-z.-]+|\$\{{[A-Z]+_IMAGE:-{IMAGE}\}})$",
    },
    build=closed(
        "context target args",
        context={"const": "."},
        target={"enum": ["web", "worker"]},
        args=closed(
            "BASE_IMAGE",
            BASE_IMAGE={"pattern": rf"^\$\{{BASE_IMAGE:-{IMAGE}\}}$"},
        ),
    ),
    read_only={"const": True},
    cap_drop={"const": ["ALL"]},
    security_opt={"const": ["no-new-privileges:true"]},
    tmpfs=TEXTS,
    user={"enum": ["postgres", "redis"]},
    command=TEXTS,
    depends_on={
        "type": "object",
        "additionalProperties": {"properties": {"condition": {"const": "service_healthy"}}},
    },
    deploy={"type": "object"},
    env_file={"type": "array"},
    environment={"type": "object", "additionalProperties": {"type": "string"}},
    healthcheck=closed(
        "test interval timeout retries",
        test=TEXTS,
        **dict.fromkeys(("interval", "timeout", "start_period"), DURATION),
        retries={"type": "integer", "minimum": 1},
    ),
    init={"const": True},
    ports=TEXTS,
    restart={"const": "unless-stopped"},
    stop_grace_period=DURATION,
    volumes=TEXTS,
)
COMPOSE = closed(
    "services volumes",
    services={"type": "object", "additionalProperties": SERVICE},
    volumes={"type": "object", "additionalProperties": {"type": "null"}},
) | {"patternProperties": {"^x-": {}}}


def test_file_has_the_form_of_a_compose_file_and_the_five_services() -> None:
    jsonschema.validate(FILE, COMPOSE)
    assert set(SERVICES) == {*COMMANDS, "postgres", "redis"}


@pytest.mark.parametrize("name", COMMANDS)
def test_service_of_ours_has_its_command_target_and_known_settings(name: str) -> None:
    service = SERVICES[name]
    assert service["command"] == ["python", "manage.py", *COMMANDS[name]]
    assert service["build"]["target"] in STAGES
    assert sorted(set(service["environment"]) - set(SETTINGS)) == []
    if name != "web":  # which migrates
        assert set(service["depends_on"]) == {"postgres", "redis", "web"}


def test_every_management_command_of_the_file_exists() -> None:
    named = set(re.findall(r"manage\.py[\", ]+([a-z_]+)", TEXT))
    assert named >= {"serve", "worker", "worker_alive"}
    assert sorted(named - set(get_commands())) == []


def test_web_and_workers_share_secrets_database_broker_and_media() -> None:
    rendered = render_compose({})
    services = [rendered[name] for name in COMMANDS]
    for name in ("TTS_SECRET_KEY", "TTS_DATABASE_URL", "TTS_REDIS_URL", "TTS_STORAGE"):
        assert len({service["environment"][name] for service in services}) == 1
    storage = services[0]["environment"]["TTS_STORAGE"]
    assert all(f"media:{storage}" in service["volumes"] for service in services)


def test_only_the_gpu_worker_reserves_a_device() -> None:
    reserving = {
        name: service["deploy"] for name, service in SERVICES.items() if "deploy" in service
    }
    devices = [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]
    assert reserving == {"gpu-worker": {"resources": {"reservations": {"devices": devices}}}}


def test_nothing_but_the_web_is_published_and_that_to_this_host_alone() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"web": ["127.0.0.1:${TTS_PORT:-8000}:8000"]}
    web = render_compose({"TTS_PORT": "9000"})["web"]
    assert web["ports"] == ["127.0.0.1:9000:8000"]
    assert web["environment"]["TTS_PORT"] == "8000"  # the container keeps its own
    assert "8000" in web["healthcheck"]["test"][-1]


@pytest.mark.parametrize("setting", [name for name in SETTINGS if name not in OWN_SETTINGS])
def test_setting_of_the_env_file_reaches_every_service_of_ours(setting: str) -> None:
    rendered = render_compose({setting: "as it was written"})
    assert {rendered[name]["environment"][setting] for name in COMMANDS} == {"as it was written"}


@pytest.mark.parametrize(("status", "is_healthy"), [(200, True), (503, False)])
def test_probe_of_the_web_asks_no_proxy_and_heeds_the_answer(
    status: int, is_healthy: bool, clean_env: dict[str, str]
) -> None:
    kind, program, *arguments = render_compose({})["web"]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "python")
    proxies = dict.fromkeys(("http_proxy", "HTTP_PROXY", "ALL_PROXY"), "http://127.0.0.1:1")
    with listening() as listener:
        listener.answers = [(status, {}, b"")]
        command = [one.replace("8000", str(listener.port)) for one in arguments]
        probe = subprocess.run([sys.executable, *command], env=clean_env | proxies, check=False)
        assert [one.path for one in listener.arrived] == ["/healthz"]
    assert (probe.returncode == 0) is is_healthy


@pytest.mark.parametrize("secret", ["TTS_SECRET_KEY", "POSTGRES_PASSWORD", "REDIS_PASSWORD"])
def test_secret_has_no_default(secret: str) -> None:
    assert f"${{{secret}:?" in TEXT
    assert f"${{{secret}:-" not in TEXT


def test_volumes_are_named_and_mounted_where_the_images_user_may_write() -> None:
    rendered = render_compose({})
    used = [one.split(":") for service in rendered.values() for one in service.get("volumes", [])]
    assert {place for place, *_ in used} == set(FILE["volumes"])
    mounts = {one.split(":")[1] for name in COMMANDS for one in rendered[name]["volumes"]}
    made = re.search(
        r"mkdir -p (.+?) && chown -R ttsweb /data /backups && ln -s /data /app/data", DOCKERFILE
    )
    assert made is not None
    # A new volume begins as a copy of what the image has there, with its owner.
    folders = set(made[1].split())
    assert mounts <= folders
    written = {value for value in image_environment().values() if value.startswith("/")}
    assert {one for one in written if Path(one).parent == Path("/data")} <= folders


def test_services_have_no_rights_and_write_to_their_volumes_alone() -> None:
    for name, service in render_compose({}).items():
        assert service["cap_drop"] == ["ALL"] and "cap_add" not in service, name
        assert service["read_only"] and service["security_opt"] == ["no-new-privileges:true"]
        assert all(re.match(r"/[a-z/]+:size=\d+m,mode=1777", one) for one in service["tmpfs"])
    assert {name: one.get("user") for name, one in SERVICES.items()} == {
        **dict.fromkeys(COMMANDS), "postgres": "postgres", "redis": "redis",
    }  # fmt: skip
    # Whatever a process makes by itself lies below the volume, not in the root.
    for name in ("TMPDIR", "XDG_CACHE_HOME", "HF_HOME", "TRITON_CACHE_DIR", "TTS_DATA_DIR"):
        assert image_environment()[name].startswith("/data")


def test_images_are_named_by_digests_and_can_be_by_others() -> None:
    digest = "@sha256:" + "0" * 64
    names = ("BASE_IMAGE", "POSTGRES_IMAGE", "REDIS_IMAGE")
    rendered = render_compose({name: f"{name.lower()}:1{digest}" for name in names})
    assert rendered["postgres"]["image"] == f"postgres_image:1{digest}"
    assert rendered["redis"]["image"] == f"redis_image:1{digest}"
    for name in COMMANDS:
        assert rendered[name]["build"]["args"] == {"BASE_IMAGE": f"base_image:1{digest}"}
    usual = re.search(r"^ARG BASE_IMAGE=(\S+)\nFROM \$\{BASE_IMAGE\} AS base", DOCKERFILE, re.M)
    assert usual is not None
    rendered = render_compose({})
    assert rendered["web"]["build"]["args"]["BASE_IMAGE"] == usual[1]
    for image in (usual[1], rendered["postgres"]["image"], rendered["redis"]["image"]):
        assert re.fullmatch(IMAGE, image)


@pytest.mark.redis
def test_redis_asks_for_its_password_and_is_healthy_with_it(tmp_path: Path) -> None:
    """Run the service's command and its probe by hand, on another port and with another /tmp."""
    service = render_compose({"REDIS_PASSWORD": "hunter2"})["redis"]
    program, port = find_redis(), str(free_port())
    assert program is not None
    environment = {"PATH": os.environ["PATH"], **service["environment"]}

    def here(command: str) -> str:
        command = command.replace("/tmp/", f"{tmp_path}/")
        command = command.replace("exec redis-server", f"exec {program}")
        return command.replace("redis-cli", f"redis-cli -p {port}")

    shell, option, command = service["command"]
    assert (shell, option) == ("sh", "-c")
    command = here(command) + f" --port {port} --bind 127.0.0.1"
    assert "hunter2" not in command
    with subprocess.Popen(["sh", "-c", command], env=environment, cwd=tmp_path) as process:
        try:
            retry = Retry(ConstantBackoff(0.02), 750)
            with redis.Redis(port=int(port), password="hunter2", retry=retry) as client:
                client.ping()
                assert client.info("memory")["maxmemory_policy"] == "noeviction"
            with redis.Redis(port=int(port)) as client, pytest.raises(redis.AuthenticationError):
                client.ping()
            kind, probe = service["healthcheck"]["test"]
            assert kind == "CMD-SHELL"
            if shutil.which("redis-cli"):
                shown = subprocess.run(["sh", "-c", here(probe)], env=environment, check=False)
                assert shown.returncode == 0
                wrong = environment | {"REDIS_PASSWORD": "wrong"}
                assert subprocess.run(["sh", "-c", here(probe)], env=wrong, check=False).returncode
            assert stat.S_IMODE((tmp_path / "redis.conf").stat().st_mode) == 0o600
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.parametrize(
    ("given", "folder"), [({}, "models"), ({"MODELS_DIR": "./data/models"}, "./data/models")]
)
def test_folder_of_weights_is_a_volume_or_the_folder_that_the_env_file_names(
    given: dict[str, str], folder: str
) -> None:
    rendered = render_compose(given)
    volumes = [one for name in COMMANDS for one in rendered[name]["volumes"]]
    found = [one for one in volumes if one.endswith(":/data/models")]
    assert found == [f"{folder}:/data/models"] * 3


def test_images_take_each_package_by_its_digest() -> None:
    commands = re.findall(r"pip install (.*?)(?= &&|\n)", DOCKERFILE)

    by_digest = "-c constraints.txt -c constraints.hashes.txt -r /tmp/list"
    assert commands == ["-r /tmp/pip", by_digest, by_digest]
    assert "constraints.hashes.txt > /tmp/pip" in STAGES["base"]
    assert "COPY pyproject.toml constraints.txt constraints.hashes.txt ./" in STAGES["base"]


def test_images_run_as_no_root_and_the_workers_alone_has_torch_and_a_compiler() -> None:
    for stage in ("web", "worker"):
        assert "\nUSER ttsweb\n" in STAGES[stage]
    assert "torch_install.py constraints.txt" in STAGES["worker"]
    assert "torch_install.py constraints.txt" not in STAGES["base"] + STAGES["web"]

    worker = DOCKERFILE.split("AS worker\n")[1]
    installed = re.search(r"apt-get install [^&]*--no-install-recommends ([a-z0-9. -]+?) >", worker)
    assert installed is not None
    assert {"gcc", "libc6-dev"} <= set(installed[1].split())  # with which Triton compiles
    assert "purge" not in worker and "autoremove" not in worker
    assert "why_nothing_compiles" in worker  # the build tries it
    assert "ARG BASE_IMAGE=python:3." in DOCKERFILE  # it has Python.h
