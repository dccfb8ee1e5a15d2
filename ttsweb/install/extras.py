"""Install the packages that only some installations need, and say how where they are missing."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

from ttsweb.commands.base import BaseCommand, CommandError, StepError
from ttsweb.configuration.env import PROJECT_DIR
from ttsweb.install.steps import list_requirements

# The extras of pyproject.toml that a person may add, with the module that each brings.
EXTRAS = {
    "wyoming": "wyoming",
    "mcp": "mcp",
    "asr": "pocketsphinx",
    "s3": "boto3",
    "otel": "opentelemetry.exporter.otlp.proto.http",
    "oidc": "mozilla_django_oidc",
}


def has_extra(extra: str) -> bool:
    return find_spec(EXTRAS[extra]) is not None


def require_extra(extra: str, what: str) -> None:
    """Refuse to go on without the packages of an extra.

    Args:
        what: needs them, as a sentence begins.

    Raises:
        StepError: extra_missing, with the command that installs them.
    """
    if not has_extra(extra):
        raise StepError("extra_missing", f"{what} needs more packages: ./tts install {extra}")


def install(command: BaseCommand, options: dict[str, Any]) -> None:
    """Install an extra beside what runs this, at the pinned versions, each file by its digest.

    Raises:
        CommandError: pip could not, or brings nothing for this Python.
    """
    extra = options["extra"]
    base = set(list_requirements(PROJECT_DIR / "pyproject.toml", []))
    wanted = list_requirements(PROJECT_DIR / "pyproject.toml", [extra])
    packages = [requirement for requirement in wanted if requirement not in base]
    pins = [
        part
        for name in ("constraints.txt", "constraints.hashes.txt")
        for part in ("-c", str(PROJECT_DIR / name))
    ]
    pip = [sys.executable, "-m", "pip", "install", *pins, *packages]
    ended = subprocess.run(pip, stdout=sys.stderr.fileno(), check=False)
    if ended.returncode:
        raise CommandError(f"pip could not install {', '.join(packages)}: its lines say why")
    # In a process of its own, as this one has looked for it before.
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec({EXTRAS[extra]!r}) is None)"
    if subprocess.run([sys.executable, "-c", look], check=False).returncode:
        raise CommandError(f"{', '.join(packages)}: there is none for this Python or machine")
    command.stdout.write(f"installed: {', '.join(packages)}")
