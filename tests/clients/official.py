"""Run clients as they are published, in an environment of their own: they pin other versions.

`sh tests/clients/install` makes it; `TTS_TEST_CLIENTS_PYTHON` may name another one's Python.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.sources import PROJECT

FOLDER = PROJECT / ".venv-clients"
_SECONDS = 180  # that a client may take, its imports included
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


def find_python() -> Path | None:
    """Return the Python of the clients' environment."""
    named = os.environ.get("TTS_TEST_CLIENTS_PYTHON")
    path = Path(named) if named else FOLDER / "bin" / "python"
    return path if path.is_file() else None


def find_node_modules() -> Path | None:
    """Return the folder of the clients in JavaScript, where Node is there to run them."""
    path = FOLDER / "node_modules"
    return path if shutil.which("node") and (path / "openai").is_dir() else None


def why_no_clients() -> str | None:
    why = "`sh tests/clients/install` has not been run (TTS_TEST_CLIENTS_PYTHON may name a Python)"
    return None if find_python() else why


def why_no_node_clients() -> str | None:
    why = "there is no Node, or `sh tests/clients/install` has not been run"
    return None if find_node_modules() else why


def run_python_client(program: str, **given: Any) -> dict[str, Any]:
    """Return the object that a program prints as its last line; it finds `given` as a dict."""
    head = "import json, sys\ngiven = json.load(sys.stdin)\n"
    return _run([str(find_python()), "-c", head + program], given)


def run_node_client(program: str, **given: Any) -> dict[str, Any]:
    """Return the object that a module prints as its last line; it finds `given` as an object."""
    head = "import { createRequire } from 'node:module';\n"
    head += f"const require = createRequire({json.dumps(str(FOLDER) + '/')});\n"
    head += "const given = JSON.parse(require('node:fs').readFileSync(0));\n"
    return _run(["node", "--input-type=module", "--eval", head + program], given)


def _run(command: list[str], given: dict[str, Any]) -> dict[str, Any]:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    ended = subprocess.run(
        command,
        input=json.dumps(given),
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    found: dict[str, Any] = json.loads(ended.stdout.strip().rpartition("\n")[2])
    return found
