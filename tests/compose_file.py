"""Read docker-compose.yml as Compose does: variables of .env filled in, for each service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

PROJECT = Path(__file__).resolve().parent.parent
SECRETS = {"TTS_SECRET_KEY": "s" * 50, "POSTGRES_PASSWORD": "p", "REDIS_PASSWORD": "r"}
# The forms of the Compose specification's interpolation; $$ is one dollar.
_VARIABLE = re.compile(
    r"\$(?:\$|(?P<plain>\w+)|\{(?P<name>\w+)(?:(?P<form>:?[-?+])(?P<word>[^{}]*))?\})"
)


def render_compose(env_file: Mapping[str, str]) -> dict[str, Any]:
    """Return the services as they are with this `.env` and the two secrets that it must have."""
    variables = {**SECRETS, **env_file}
    parsed = yaml.safe_load((PROJECT / "docker-compose.yml").read_text("utf-8"))
    services: dict[str, Any] = interpolate(parsed, variables)["services"]
    for service in services.values():
        given = variables if "env_file" in service else {}
        service["environment"] = {**given, **service.get("environment", {})}
    return services


def image_environment() -> dict[str, str]:
    """Return the variables that the images bring along."""
    text = (PROJECT / "Dockerfile").read_text("utf-8")
    (block,) = re.findall(r"^ENV ((?:.*\\\n)*.*)", text, re.M)
    return dict(part.split("=", 1) for part in block.replace("\\\n", " ").split())


def interpolate(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a parsed value with the variables of every text in it filled in."""
    if isinstance(value, dict):
        return {name: interpolate(item, variables) for name, item in value.items()}
    if isinstance(value, list):
        return [interpolate(item, variables) for item in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda match: _fill(match, variables), value)
    return value


def _fill(match: re.Match[str], variables: Mapping[str, str]) -> str:
    name, form, word = match["plain"] or match["name"], match["form"] or "", match["word"]
    if name is None:
        return "$"
    found = variables.get(name)
    is_set = bool(found) if form.startswith(":") else found is not None
    if form.endswith("+"):
        return word if is_set else ""
    if form.endswith("?") and not is_set:
        raise ValueError(f"{name}: {word}")
    return (found if is_set else word if form.endswith("-") else found) or ""
