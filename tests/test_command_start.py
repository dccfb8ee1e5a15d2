"""What a command loads: its arguments are read, and a server is asked, without Django or torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from django.core.management import get_commands

from lab.management.commands.bench import BENCHES
from tests.workers.commands import PROJECT
from ttsweb.commands.line import LAB_COMMANDS, find_names

HEAVY = (
    "django", "rest_framework", "celery", "torch", "numpy", "lxml", "triton", "regex", "sentencex"
)  # fmt: skip
FOLDERS = [path for path in PROJECT.glob("*/management/commands") if path.is_dir()]
OURS = {path.stem for folder in FOLDERS for path in folder.glob("[!_]*.py")} - {"test"}
REMOTE = {path.stem for path in (PROJECT / "ttsweb/management/commands").glob("[!_]*.py")}
# What of each command asks the server something; a new one has to be entered.
ASKING = {
    "batches": ["ls"],
    "book_batches": ["ls"],
    "books": ["ls"],
    "jobs": ["ls"],
    "render": ["a.txt", "--voice", "Ada"],
    "say": ["Hello.", "--voice", "Ada", "--output", "a.wav"],
    "voices": ["ls"],
}
RUN = """
import json, sys
from pathlib import Path
found, sys.argv = Path(sys.argv[1]), ["manage.py", *sys.argv[2:]]
from ttsweb.commands.line import run
try:
    run(sys.argv)
finally:
    found.write_text(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def run(
    environment: dict[str, str], folder: Path, *arguments: str
) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run a command as `manage.py` does; return its end and the packages that it loaded."""
    listed = folder / "loaded.json"
    ended = subprocess.run(
        [sys.executable, "-c", RUN, str(listed), *arguments],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended, set(json.loads(listed.read_text()))


@pytest.mark.parametrize(
    "command", [*([name] for name in sorted(OURS)), *(["bench", name] for name in sorted(BENCHES))]
)
def test_help_loads_nothing_heavy(
    command: list[str], clean_env: dict[str, str], tmp_path: Path
) -> None:
    ended, loaded = run(clean_env, tmp_path, *command, "--help")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"usage: manage.py {' '.join(command)}")
    assert loaded.isdisjoint({*HEAVY, "httpx", "rich"})


@pytest.mark.parametrize("name", ["check", "migrate", "collectstatic", "showmigrations"])
@pytest.mark.parametrize("argument", ["--help", "--nonsense"])
def test_arguments_of_commands_of_libraries_load_no_app(
    name: str, argument: str, clean_env: dict[str, str], tmp_path: Path
) -> None:
    ended, loaded = run(clean_env, tmp_path, name, argument)
    assert ended.returncode == (0 if argument == "--help" else 2), ended.stderr
    shown = ended.stdout + ended.stderr
    assert shown.startswith(f"usage: manage.py {name}")
    assert argument == "--help" or "unrecognized arguments: --nonsense" in shown
    assert loaded.isdisjoint({"rest_framework", "synth", "torch", "voices", "workers"})


@pytest.mark.parametrize("name", sorted(OURS))
def test_wrong_arguments_load_nothing_heavy(
    name: str, clean_env: dict[str, str], tmp_path: Path
) -> None:
    ended, loaded = run(clean_env, tmp_path, name, "--no-such-argument")
    assert ended.returncode == 2
    assert "error: " in ended.stderr
    assert loaded.isdisjoint({*HEAVY, "httpx", "rich"})


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["help"], 0, "[ttsweb]\n    batches"),
        (["help", "render"], 0, "usage: manage.py render"),
        (["rendr"], 1, "Unknown command: 'rendr'. Did you mean render?"),
        (["render", "--version"], 0, "."),
    ],
)
def test_list_of_commands_loads_nothing_heavy(
    arguments: list[str], code: int, words: str, clean_env: dict[str, str], tmp_path: Path
) -> None:
    ended, loaded = run(clean_env, tmp_path, *arguments)
    assert ended.returncode == code
    assert words in ended.stdout + ended.stderr
    assert loaded.isdisjoint({*HEAVY, "httpx", "rich"})


def test_list_of_commands_is_that_of_django() -> None:
    theirs = {name: app.removeprefix("django.").rpartition(".")[-1] for name, app in
              get_commands().items()}  # fmt: skip
    assert find_names() == {
        name: "django" if app == "core" else app for name, app in theirs.items()
    }


def test_command_of_the_lab_names_the_source_tree_where_there_is_no_lab(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    installed, lab = tmp_path / "installed", PROJECT / "lab/management/commands"
    left_out = shutil.ignore_patterns("static", "templates", "__pycache__")
    shutil.copytree(PROJECT / "ttsweb", installed / "ttsweb", ignore=left_out)

    assert sorted(LAB_COMMANDS) == sorted(path.stem for path in lab.glob("[!_]*.py"))
    for name in LAB_COMMANDS:
        ended, _ = run(clean_env | {"PYTHONPATH": str(installed)}, tmp_path, name, "--help")
        assert ended.returncode == 1
        assert f"{name} is a command of the source tree: run ./tts {name} in" in ended.stderr


def test_commands_of_django_still_run(clean_env: dict[str, str], tmp_path: Path) -> None:
    ended, loaded = run(clean_env, tmp_path, "makemigrations", "--check", "--dry-run")
    assert (ended.returncode, ended.stdout) == (0, "No changes detected\n"), ended.stderr
    assert "django" in loaded


class NothingHere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"status": 404, "code": "not_found", "detail": "There is none."})
        self.send_response(404)
        self.send_header("Content-Type", "application/problem+json")
        self.end_headers()
        self.wfile.write(body.encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), NothingHere) as listening:
        thread = Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize("name", sorted({*REMOTE, "say"}))
def test_command_that_asks_a_server_loads_no_django(
    name: str, server: str, clean_env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("Hello.")
    environment = clean_env | {"TTS_URL": server, "TTS_API_KEY": "tts_key"}
    ended, loaded = run(environment, tmp_path, name, *ASKING[name])

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "CommandError: not_found: There is none." in ended.stderr
    assert "httpx" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_bad_setting_is_one_sentence_to_whoever_needs_the_settings(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    environment = clean_env | {"TTS_PORT": "http"}
    asked, _ = run(environment, tmp_path, "jobs", "ls")
    helped, _ = run(environment, tmp_path, "serve", "--help")
    assert asked.stderr.startswith("settings: TTS_PORT='http': expected a whole number")
    assert asked.returncode == 1
    assert helped.returncode == 0
