"""docker-compose.yml: the services, their commands, what they share and what they wait for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from django.core.management import get_commands

from tests.compose_file import render_compose
from ttsweb.configuration.env import SETTINGS

PROJECT = Path(__file__).resolve().parent.parent
TEXT = (PROJECT / "docker-compose.yml").read_text("utf-8")
DOCKERFILE = (PROJECT / "Dockerfile").read_text("utf-8")
STAGES = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.M | re.S))
OURS = ("web", "gpu-worker", "cpu-worker")
DURATION = {"type": "string", "pattern": "^[0-9]+(s|m)$"}

# The part of the Compose format that the file uses; anything else is most likely a slip.
SERVICE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["image", "restart", "healthcheck"],
    "properties": {
        "image": {"type": "string", "pattern": "^[a-z-]+:[0-9a-z.-]+$"},
        "build": {
            "type": "object",
            "additionalProperties": False,
            "required": ["context", "target"],
            "properties": {"context": {"const": "."}, "target": {"enum": ["web", "worker"]}},
        },
        "command": {"type": "array", "items": {"type": "string"}},
        "depends_on": {
            "type": "object",
            "additionalProperties": {"properties": {"condition": {"const": "service_healthy"}}},
        },
        "deploy": {"type": "object"},
        "env_file": {"type": "array"},
        "environment": {"type": "object", "additionalProperties": {"type": "string"}},
        "healthcheck": {
            "type": "object",
            "additionalProperties": False,
            "required": ["test", "interval", "timeout", "retries"],
            "properties": {
                "test": {"type": "array", "items": {"type": "string"}},
                "interval": DURATION,
                "timeout": DURATION,
                "start_period": DURATION,
                "retries": {"type": "integer", "minimum": 1},
            },
        },
        "init": {"const": True},
        "ports": {"type": "array", "items": {"type": "string"}},
        "restart": {"const": "unless-stopped"},
        "stop_grace_period": DURATION,
        "volumes": {"type": "array", "items": {"type": "string"}},
    },
}
COMPOSE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["services", "volumes"],
    "properties": {
        "services": {"type": "object", "additionalProperties": SERVICE},
        "volumes": {"type": "object", "additionalProperties": {"type": "null"}},
    },
    "patternProperties": {"^x-": {}},
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(TEXT)
    return loaded


def test_file_has_the_form_of_a_compose_file(compose: dict[str, Any]) -> None:
    jsonschema.validate(compose, COMPOSE)


def test_services_are_the_five_of_the_architecture(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {*OURS, "postgres", "redis"}


@pytest.mark.parametrize(
    ("service", "command"),
    [
        ("web", ["serve", "--host", "0.0.0.0"]), ("gpu-worker", ["worker", "--role", "gpu"]),
        ("cpu-worker", ["worker", "--role", "cpu"]),
    ],
)  # fmt: skip
def test_service_runs_the_command_of_the_documentation(
    compose: dict[str, Any], service: str, command: list[str]
) -> None:
    assert compose["services"][service]["command"] == ["python", "manage.py", *command]


def test_every_management_command_of_the_file_exists(compose: dict[str, Any]) -> None:
    named = set(re.findall(r"manage\.py[\", ]+([a-z_]+)", TEXT))
    assert named >= {"serve", "worker", "worker_alive"}
    assert sorted(named - set(get_commands())) == []


def test_every_setting_of_the_file_exists(compose: dict[str, Any]) -> None:
    for service in OURS:
        names = set(compose["services"][service]["environment"])
        assert sorted(names - set(SETTINGS)) == []


def test_web_and_workers_share_secrets_database_broker_and_media(compose: dict[str, Any]) -> None:
    services = [compose["services"][name] for name in OURS]
    for name in ("TTS_SECRET_KEY", "TTS_DATABASE_URL", "TTS_REDIS_URL", "TTS_STORAGE_DIR"):
        assert len({service["environment"][name] for service in services}) == 1
    storage = services[0]["environment"]["TTS_STORAGE_DIR"]
    assert all(f"media:{storage}" in service["volumes"] for service in services)


def test_volumes_that_are_used_are_named_ones(compose: dict[str, Any]) -> None:
    used = {
        volume.split(":")[0]
        for service in render_compose({}).values()
        for volume in service.get("volumes", [])
    }
    assert used == set(compose["volumes"])


def test_only_the_gpu_worker_reserves_a_device(compose: dict[str, Any]) -> None:
    reserving = [name for name, service in compose["services"].items() if "deploy" in service]
    devices = compose["services"]["gpu-worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert reserving == ["gpu-worker"]
    assert devices == [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}]


def test_nothing_but_the_web_is_published_and_that_to_this_host_alone(
    compose: dict[str, Any],
) -> None:
    published = {
        name: service["ports"]
        for name, service in compose["services"].items()
        if "ports" in service
    }
    assert published == {"web": ["127.0.0.1:${TTS_PORT:-8000}:8000"]}


@pytest.mark.parametrize("secret", ["TTS_SECRET_KEY", "POSTGRES_PASSWORD"])
def test_secret_has_no_default(secret: str) -> None:
    assert f"${{{secret}:?" in TEXT
    assert f"${{{secret}:-" not in TEXT


def test_workers_wait_until_the_web_has_migrated(compose: dict[str, Any]) -> None:
    for name in ("gpu-worker", "cpu-worker"):
        assert set(compose["services"][name]["depends_on"]) == {"postgres", "redis", "web"}


def test_dockerfile_has_the_targets_and_the_commands_of_the_file(compose: dict[str, Any]) -> None:
    for name in OURS:
        assert compose["services"][name]["build"]["target"] in STAGES
    assert "torch_install.py constraints.txt" in STAGES["worker"]
    assert "torch_install.py constraints.txt" not in STAGES["base"] + STAGES["web"]


@pytest.mark.parametrize("stage", ["web", "worker"])
def test_image_does_not_run_as_root(stage: str) -> None:
    assert "\nUSER ttsweb\n" in STAGES[stage]


def test_port_of_the_env_file_is_published_and_the_container_keeps_its_own() -> None:
    web = render_compose({"TTS_PORT": "9000"})["web"]
    assert web["ports"] == ["127.0.0.1:9000:8000"]
    assert web["environment"]["TTS_PORT"] == "8000"
    assert ":8000/" in web["healthcheck"]["test"][-1]


def test_folder_of_weights_is_a_volume_or_the_folder_that_the_env_file_names() -> None:
    volumes = [
        [volume for volume in service["volumes"] if volume.endswith(":/data/models")]
        for given in ({}, {"MODELS_DIR": "./data/models"})
        for name, service in render_compose(given).items()
        if name in OURS
    ]
    assert volumes == [["models:/data/models"]] * 3 + [["./data/models:/data/models"]] * 3


def test_folders_of_volumes_belong_to_the_images_user_and_data_leads_to_them() -> None:
    made = re.search(
        r"mkdir -p (.+?) && chown -R ttsweb /data && ln -s /data /app/data", DOCKERFILE
    )
    mounts = {
        volume.split(":")[1] for name in OURS for volume in render_compose({})[name]["volumes"]
    }
    assert made is not None
    assert set(made[1].split()) == mounts


def test_worker_image_keeps_what_triton_compiles_with_and_the_build_tries_it() -> None:
    worker = DOCKERFILE.split("AS worker\n")[1]
    installed = re.search(r"apt-get install [^&]*--no-install-recommends ([a-z0-9. -]+?) >", worker)

    assert installed is not None
    assert {"gcc", "libc6-dev"} <= set(installed[1].split())
    assert "purge" not in worker and "autoremove" not in worker
    assert "why_nothing_compiles" in worker
    assert DOCKERFILE.index("FROM python:3.") < DOCKERFILE.index("AS base")  # it has Python.h
