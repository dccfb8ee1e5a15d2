"""What a command loads: its arguments are read, and a server is asked, without Django or torch."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from django.core.management import get_commands

from lab.management.commands.bench import BENCHES
from tests.ttsweb.http.listeners import listening
from tests.workers.commands import PROJECT, environment_for, run
from ttsweb.commands.line import LAB_COMMANDS, find_names

HEAVY = {
    "django", "rest_framework", "celery", "torch", "numpy", "lxml", "triton", "regex", "sentencex"
}  # fmt: skip
FOLDERS = [path for path in PROJECT.glob("*/management/commands") if path.is_dir()]
OURS = sorted({path.stem for folder in FOLDERS for path in folder.glob("[!_]*.py")} - {"test"})
REMOTE = {path.stem for path in (PROJECT / "ttsweb/management/commands").glob("[!_]*.py")}
# What of each command asks the server something; a new one has to be entered.
ASKING = {
    **dict.fromkeys(("batches", "book_batches", "books", "jobs", "voices"), "ls"),
    "render": "a.txt --voice Ada",
    "say": "Hello. --voice Ada --output a.wav",
}
# Runs commands as `manage.py` does, each in a fork: Python itself is started once.
STARTER = """
import json, os, sys
from pathlib import Path
from ttsweb.commands.line import run
for line in sys.stdin:
    asked = json.loads(line)
    if not (child := os.fork()):
        os.chdir(asked["folder"])
        os.environ.update(asked["environment"])
        for descriptor, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.argv = ["manage.py", *asked["arguments"]]
        try:
            run(sys.argv)
        finally:
            Path("loaded").write_text(" ".join({name.partition(".")[0] for name in sys.modules}))
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Ended(NamedTuple):
    """A command that has ended, and the packages that it loaded."""

    code: int
    out: str
    err: str
    loaded: set[str]


Run = Callable[..., Ended]


@contextmanager
def starting(folder: Path, **environment: str) -> Iterator[Run]:
    """Yield what runs a command in a folder, in which there is a text."""
    (folder / "a.txt").write_text("Hello.")
    with subprocess.Popen(
        [sys.executable, "-c", STARTER],
        env=environment_for(folder) | environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def run(*arguments: str, **more: str) -> Ended:
            assert process.stdin is not None and process.stdout is not None
            asked = {"folder": str(folder), "arguments": arguments, "environment": more}
            print(json.dumps(asked), file=process.stdin, flush=True)
            code = int(process.stdout.readline())
            out, err, loaded = ((folder / name).read_text() for name in ("out", "err", "loaded"))
            return Ended(code, out, err, set(loaded.split()))

        yield run


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with starting(tmp_path_factory.mktemp("commands")) as run:
        yield run


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        *((f"{name} --help", 0, f"usage: manage.py {name}") for name in OURS),
        *((f"bench {name} --help", 0, f"usage: manage.py bench {name}") for name in BENCHES),
        *((f"{name} --no-such-argument", 2, "(?s).*error: ") for name in OURS),
        ("help", 0, r"(?s).*\[ttsweb\]\n    batches"),
        ("help render", 0, "usage: manage.py render"),
        ("rendr", 1, r"(?s).*Unknown command: 'rendr'\. Did you mean render\?"),
        ("render --version", 0, r"\d+\."),
    ],
)
def test_arguments_are_read_and_commands_listed_without_anything_heavy(
    command: Run, arguments: str, code: int, said: str
) -> None:
    ended = command(*arguments.split())
    assert ended.code == code, ended.err
    assert re.match(said, ended.err if code else ended.out)
    assert ended.loaded.isdisjoint(HEAVY | {"httpx", "rich"})


@pytest.mark.parametrize("name", ["check", "migrate", "collectstatic", "showmigrations"])
def test_arguments_of_commands_of_libraries_load_no_app(command: Run, name: str) -> None:
    helped, refused = command(name, "--help"), command(name, "--nonsense")
    assert (helped.code, refused.code) == (0, 2), helped.err
    for shown in (helped.out, refused.err):
        assert shown.startswith(f"usage: manage.py {name}")
    assert "unrecognized arguments: --nonsense" in refused.err
    loaded = helped.loaded | refused.loaded
    assert loaded.isdisjoint({"rest_framework", "synth", "torch", "voices", "workers"})


def test_program_is_called_as_it_was_typed(clean_env: dict[str, str]) -> None:
    command = [sys.executable, "manage.py"]
    environment = clean_env | {"TTSWEB_PROGRAM": "./tts"}
    for arguments, said in (
        (["render", "--nonsense"], "usage: ./tts render "),
        (["rendr"], "Type './tts help' for usage."),
        (["migrate", "--nonsense"], "usage: tts migrate "),  # Django's own keep the last part
    ):
        ended = subprocess.run(
            [*command, *arguments],
            env=environment, cwd=PROJECT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode != 0
        assert said in ended.stderr


def test_list_of_commands_is_that_of_django() -> None:
    theirs = {name: app.removeprefix("django.").rpartition(".")[-1] for name, app in
              get_commands().items()}  # fmt: skip
    assert find_names() == {
        name: "django" if app == "core" else app for name, app in theirs.items()
    }


def test_command_of_the_lab_names_the_source_tree_where_there_is_no_lab(tmp_path: Path) -> None:
    installed, lab = tmp_path / "installed", PROJECT / "lab/management/commands"
    left_out = shutil.ignore_patterns("static", "templates", "__pycache__")
    shutil.copytree(PROJECT / "ttsweb", installed / "ttsweb", ignore=left_out)

    assert sorted(LAB_COMMANDS) == sorted(path.stem for path in lab.glob("[!_]*.py"))
    with starting(tmp_path, PYTHONPATH=str(installed)) as run:
        for name in LAB_COMMANDS:
            ended = run(name, "--help")
            assert ended.code == 1
            assert f"{name} is a command of the source tree: run ./tts {name} in" in ended.err


def test_commands_of_django_still_run(command: Run) -> None:
    ended = command("makemigrations", "--check", "--dry-run")
    assert (ended.code, ended.out) == (0, "No changes detected\n"), ended.err
    assert "django" in ended.loaded


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    body = json.dumps({"status": 404, "code": "not_found", "detail": "There is none."})
    with listening() as listener:
        listener.answers = [(404, {"Content-Type": "application/problem+json"}, body.encode())]
        yield listener.url


@pytest.mark.parametrize("name", sorted({*REMOTE, "say"}))
def test_command_that_asks_a_server_loads_no_django(command: Run, name: str, server: str) -> None:
    ended = command(name, *ASKING[name].split(), TTS_URL=server, TTS_API_KEY="tts_key")

    assert (ended.code, ended.out) == (1, "")
    assert "CommandError: not_found: There is none." in ended.err
    assert "httpx" in ended.loaded
    assert ended.loaded.isdisjoint(HEAVY)


def test_bad_setting_is_one_sentence_to_whoever_needs_the_settings(command: Run) -> None:
    asked = command("jobs", "ls", TTS_PORT="http")
    assert asked.err.startswith("settings: TTS_PORT='http': expected a whole number")
    assert asked.code == 1
    assert command("serve", "--help", TTS_PORT="http").code == 0


def test_command_before_any_table_is_there_says_what_makes_them(tmp_path: Path) -> None:
    asked = ("create_key", "--user", "ann", "--name", "mine", "--json")

    ended = run(environment_for(tmp_path), *asked)

    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    error = json.loads(ended.stdout)["error"]
    assert error["code"] == "database_unavailable"
    assert "lacks tables; ./tts demo and ./tts serve make them" in error["message"]
