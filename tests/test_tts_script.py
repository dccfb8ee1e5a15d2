"""What `./tts` does on its first run and after it, with a stand-in for Python's installers.

The stand-in is a shell script on a PATH of its own: `-m venv` and `-m pip` only note that they
were called, and everything else goes to the real Python. No test here needs the network.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

PROJECT = Path(__file__).resolve().parent.parent
SHELL = shutil.which("dash") or "/bin/sh"
# fmt: off
TOOLS = ["cat", "cksum", "cp", "date", "dirname", "grep", "ls", "mkdir", "mv", "readlink", "rm",
         "sed", "sh", "sleep", "tail", "tr", "uname"]
# fmt: on

STUB = """#!/bin/sh
note() {{ printf '%s\\n' "$1" >>"$STUB_CALLS"; }}
case "$*" in
'-c import sys; sys.exit'*) exec {real} -c "import sys
sys.version_info = ${{STUB_VERSION-(3, 12)}}
${{2#import sys; }}" ;;
*'import ensurepip, venv'*) [ -z "${{STUB_NO_VENV-}}" ] || exit 1 ;;
'-m venv '*) note venv; mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
'-m pip '*)
    note "pip $(printf '%s' "$*" | sed 's/.* //; s|.*/||')"
    [ -z "${{STUB_PIP_SLEEPS-}}" ] || sleep "$STUB_PIP_SLEEPS"
    [ -z "${{STUB_PIP_KILLS-}}" ] || kill -9 "$PPID"
    [ -z "${{STUB_PIP_FAILS-}}" ] || {{ printf '%s\\n' "$STUB_PIP_FAILS" >&2; exit 1; }} ;;
*torch_install.py*) note "torch ${{TTS_TORCH-}}"; exit "${{STUB_TORCH_EXIT-0}}" ;;
*) exec {real} "$@" ;;
esac
"""


class Ended(NamedTuple):
    """A run that is over: its exit code and output, and what it had the stand-in install."""

    code: int
    out: str
    err: str
    calls: list[str]


@dataclass
class Checkout:
    """A copy of the project's front door, with a PATH that holds only what it may use."""

    root: Path
    bin: Path
    calls_file: Path

    def start(self, *arguments: str, script: str = "", **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [SHELL, script or str(self.root / "tts"), *arguments],
            cwd=self.bin,
            env={"PATH": str(self.bin), "STUB_CALLS": str(self.calls_file), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self, process: subprocess.Popen[str]) -> Ended:
        out, err = process.communicate(timeout=60)
        calls = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        self.calls_file.unlink(missing_ok=True)
        return Ended(process.returncode, out, err, calls)

    def run(self, *arguments: str, script: str = "", **environment: str) -> Ended:
        return self.wait(self.start(*arguments, script=script, **environment))


FIRST_RUN = ["venv", "pip .tts-pip", "pip .tts-list", "torch "]
SECOND_RUN = FIRST_RUN[1:]
DEMO = "['demo']\n"  # what the stand-in for manage.py prints
NO_PYTHON = "no Python from 3.11 to 3.14 was found", "install python"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A fresh checkout in a folder whose name has spaces, and one Python on the PATH."""
    root, bin_folder = tmp_path / "a place with spaces", tmp_path / "bin"
    (root / "ttsweb/install").mkdir(parents=True)
    bin_folder.mkdir()
    for name in ("tts", "pyproject.toml", "constraints.txt", "constraints.hashes.txt"):
        shutil.copy(PROJECT / name, root / name)
    for script in ("steps.py", "torch_install.py"):
        shutil.copy(PROJECT / "ttsweb/install" / script, root / "ttsweb/install" / script)
    (root / "manage.py").write_text(
        "import sys\nprint(sys.argv[1:])\nsys.exit(len(sys.argv) % 7)\n"
    )
    for tool in TOOLS:
        program = shutil.which(tool)
        assert program is not None, f"this machine has no {tool}"
        (bin_folder / tool).symlink_to(program)
    add_python(bin_folder, "python3.12")
    return Checkout(root, bin_folder, tmp_path / "calls")


@pytest.fixture
def installed(checkout: Checkout) -> Checkout:
    checkout.run("demo")
    return checkout


def add_python(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text(STUB.format(real=f"'{sys.executable}'"))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_script_is_short_and_plain_enough_for_any_shell(shell: str) -> None:
    assert len((PROJECT / "tts").read_text().splitlines()) < 120
    if shutil.which(shell) is None:
        pytest.skip(f"this machine has no {shell}")
    checked = subprocess.run([shell, "-n", PROJECT / "tts"], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_first_run_installs_everything_and_runs_the_command(checkout: Checkout) -> None:
    ended = checkout.run("demo", "--json", "two words")
    assert ended[:2] + ended[3:] == (4, "['demo', '--json', 'two words']\n", FIRST_RUN)
    assert "Installing into .venv" in ended.err
    assert "\x1b" not in ended.out + ended.err
    listed = (checkout.root / ".venv/.tts-list").read_text().splitlines()
    names = ("torch", "safetensors", "pytest")  # torch has an installer of its own
    has = {name: any(line.startswith(name) for line in listed) for name in names}
    assert has == {"torch": False, "safetensors": True, "pytest": False}


def test_second_run_installs_nothing_and_the_tests_the_dev_extra_once(installed: Checkout) -> None:
    (installed.root / "pyproject.toml").touch()
    assert installed.run("say", "hello")[1:] == ("['say', 'hello']\n", "", [])
    assert installed.run("test", "-k", "name").calls == SECOND_RUN
    assert "pytest" in (installed.root / ".venv/.tts-list").read_text()
    assert installed.run("test").calls == installed.run("demo").calls == []


def test_no_argument_lists_the_commands_and_installs_nothing(checkout: Checkout) -> None:
    ended = checkout.run()
    assert (ended.code, ended.err, ended.calls) == (0, "", [])
    assert "verify-golden" in ended.out


@pytest.mark.parametrize("module", ["some_thing", "some-thing"])
def test_command_with_a_hyphen_reaches_its_module(checkout: Checkout, module: str) -> None:
    folder = checkout.root / "workers/management/commands"
    folder.mkdir(parents=True)
    (folder / f"{module}.py").touch()
    assert checkout.run("some-thing", "some-folder").out == f"['{module}', 'some-folder']\n"


def test_changed_project_file_is_installed_again_whatever_its_age(installed: Checkout) -> None:
    for name in (
        "pyproject.toml",
        "constraints.hashes.txt",
        "constraints.txt",
        "ttsweb/install/torch_install.py",
    ):
        path = installed.root / name
        before = path.stat()
        path.write_text(path.read_text() + "\n# one line more\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert installed.run("demo").calls == SECOND_RUN, name


def test_moved_folder_gets_a_new_venv(installed: Checkout) -> None:
    installed.root = installed.root.rename(installed.root.with_name("elsewhere"))
    ended = installed.run("demo")
    assert (ended.out, ended.calls) == (DEMO, FIRST_RUN)


def test_link_to_another_checkouts_venv_is_replaced_and_that_one_kept(installed: Checkout) -> None:
    venv, others = installed.root / ".venv", installed.root / "other"
    venv.rename(others)
    (others / ".tts-made").write_text("of another checkout\n")
    venv.symlink_to(others)
    ended = installed.run("demo")
    assert (ended.code, ended.calls) == (2, FIRST_RUN), ended.err
    assert not venv.is_symlink()
    assert (others / "bin" / "python").exists()


def test_active_venv_that_no_longer_fits_is_made_with_another_python(installed: Checkout) -> None:
    active = installed.root / ".venv/bin"
    add_python(active, "python3.14")
    (installed.root / ".venv/.tts-made").write_text("somewhere else")
    ended = installed.run("demo", PATH=f"{active}:{installed.bin}")
    assert (ended.out, ended.calls) == (DEMO, FIRST_RUN)


def test_script_finds_its_folder_through_links(checkout: Checkout, tmp_path: Path) -> None:
    first, second = tmp_path / "first link", checkout.bin / "tts"
    first.symlink_to(checkout.root / "tts")
    second.symlink_to(Path("..") / "first link")
    assert checkout.run("demo", script=str(second)).out == DEMO
    assert (checkout.root / ".venv").is_dir()


@pytest.mark.parametrize("is_upgrade", [False, True])
def test_killed_installation_is_done_again_from_the_start(
    checkout: Checkout, is_upgrade: bool
) -> None:
    if is_upgrade:
        checkout.run("demo")
        with (checkout.root / "constraints.txt").open("a") as constraints:
            constraints.write("# changed\n")
    killed = checkout.run("demo", STUB_PIP_KILLS="yes")
    ended = checkout.run("demo")
    assert killed.code != 0
    assert (ended.out, ended.calls) == (DEMO, FIRST_RUN)
    assert (checkout.root / ".tts-lock").exists()
    assert "Waiting" not in ended.err, "the lock of a killed run holds nobody up"


@pytest.mark.parametrize(
    ("name", "value", "code", "words"),
    [
        ("STUB_PIP_FAILS", "ERROR: No matching x", 1, "tts: pip: ERROR: No matching x"),
        ("STUB_PIP_FAILS", "NewConnectionError: x\nERROR: y", 1, "tts: the package index cannot be "
         "reached: check network and proxy, then run this again"),
        ("STUB_TORCH_EXIT", "3", 3, ""),
    ],
)  # fmt: skip
def test_failed_installation_says_why_and_is_tried_again_in_the_same_venv(
    checkout: Checkout, name: str, value: str, code: int, words: str
) -> None:
    failed, ended = checkout.run("demo", **{name: value}), checkout.run("demo")
    said = [line for line in failed.err.splitlines() if line.startswith("tts: ")]
    assert (failed.code, failed.out, len(said)) == (code, "", bool(words))
    assert "".join(said).startswith(words)
    assert (ended.out, ended.calls) == (DEMO, SECOND_RUN)


def test_two_first_runs_at_once_install_once(checkout: Checkout) -> None:
    started = [checkout.start(name, STUB_PIP_SLEEPS="0.5") for name in ("demo", "say")]
    first, second = [checkout.wait(process) for process in started]
    assert first.calls + second.calls == FIRST_RUN
    assert (first.out, second.out) == (DEMO, "['say']\n")
    assert (first.err + second.err).count("Waiting for another installation") == 1


@pytest.mark.parametrize(
    ("name", "value", "code", "words"),
    [
        ("", "", 1, NO_PYTHON), ("STUB_VERSION", "(3, 10)", 1, NO_PYTHON),
        ("STUB_VERSION", "(3, 15)", 1, NO_PYTHON), ("STUB_VERSION", "(2, 7)", 1, NO_PYTHON),
        ("STUB_NO_VENV", "yes", 1, ("apt install python3-venv",)),
        ("TTS_PYTHON", "/no/such/python", 1,
         ("tts: TTS_PYTHON='/no/such/python': expected a Python from 3.11 to 3.14\n",)),
        ("TTS_TORCH", "gpu", 2, ("tts: TTS_TORCH='gpu': expected cpu or cuda\n",)),
    ],
)  # fmt: skip
def test_what_stops_before_anything_is_installed_is_one_line_with_the_remedy(
    checkout: Checkout, name: str, value: str, code: int, words: tuple[str, ...]
) -> None:
    if not name:
        (checkout.bin / "python3.12").unlink()
    ended = checkout.run("demo", **({name: value} if name else {}))
    assert (ended.code, ended.out, ended.calls) == (code, "", [])
    assert ended.err.count("\n") == 1
    assert [word for word in words if word not in ended.err] == []


@pytest.mark.parametrize("version", ["(3, 11)", "(3, 14)"])
def test_oldest_and_newest_supported_python_are_taken(checkout: Checkout, version: str) -> None:
    assert checkout.run("demo", STUB_VERSION=version).out == DEMO


def test_python_named_by_the_operator_is_taken(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.bin / "python3.12").unlink()
    folder = tmp_path / "own python"
    folder.mkdir()
    ended = checkout.run("demo", TTS_PYTHON=str(add_python(folder, "py")))
    assert (ended.out, ended.calls) == (DEMO, FIRST_RUN)


def test_other_python_or_torch_named_later_is_installed_once(installed: Checkout) -> None:
    add_python(installed.bin, "python3.13")
    assert installed.run("demo", TTS_PYTHON="python3.13").calls == FIRST_RUN
    assert installed.run("demo").calls == []
    assert installed.run("demo", TTS_TORCH="cpu").calls[-1] == "torch cpu"
    assert installed.run("demo").calls == installed.run("demo", TTS_TORCH="cpu").calls == []


def test_venv_made_by_hand_is_taken_over(checkout: Checkout) -> None:
    folder = checkout.root / ".venv/bin"
    folder.mkdir(parents=True)
    add_python(folder, "python")
    assert checkout.run("demo").calls == SECOND_RUN
