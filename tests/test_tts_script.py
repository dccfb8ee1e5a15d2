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


@dataclass
class Checkout:
    """A copy of the project's front door, with a PATH that holds only what it may use."""

    root: Path
    bin: Path
    calls_file: Path

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return self.start_as(self.root / "tts", *arguments, **environment)

    def start_as(self, script: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        env = {"PATH": str(self.bin), "STUB_CALLS": str(self.calls_file), **environment}
        return subprocess.Popen(
            [SHELL, str(script), *arguments],
            cwd=self.bin,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> "Ended":
        return Ended.wait_for(self.start(*arguments, **environment))

    def calls(self) -> list[str]:
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        self.calls_file.unlink(missing_ok=True)
        return lines


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @classmethod
    def wait_for(cls, process: subprocess.Popen[str]) -> "Ended":
        out, err = process.communicate(timeout=60)
        return cls(process.returncode, out, err)


FIRST_RUN = ["venv", "pip pip", "pip .tts-list", "torch "]
SECOND_RUN = FIRST_RUN[1:]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A fresh checkout in a folder whose name has spaces, and one Python on the PATH."""
    root, bin_folder = tmp_path / "a place with spaces", tmp_path / "bin"
    (root / "ttsweb/install").mkdir(parents=True)
    bin_folder.mkdir()
    for name in ("tts", "pyproject.toml", "constraints.txt"):
        shutil.copy(PROJECT / name, root / name)
    for name in ("install_lock.py", "install_list.py", "torch_install.py"):
        shutil.copy(PROJECT / "ttsweb/install" / name, root / "ttsweb/install" / name)
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
    checkout.calls()
    return checkout


def add_python(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text(STUB.format(real=f"'{sys.executable}'"))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_script_is_plain_enough_for_any_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"this machine has no {shell}")
    checked = subprocess.run([shell, "-n", PROJECT / "tts"], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_script_stays_under_120_lines() -> None:
    assert len((PROJECT / "tts").read_text().splitlines()) < 120


def test_first_run_installs_everything_and_runs_the_command(checkout: Checkout) -> None:
    ended = checkout.run("demo", "--json", "two words")
    assert checkout.calls() == FIRST_RUN
    assert ended.out == "['demo', '--json', 'two words']\n"
    assert ended.code == 4
    assert "Installing into .venv" in ended.err
    assert "\x1b" not in ended.out + ended.err


def test_second_run_installs_nothing_and_says_nothing(installed: Checkout) -> None:
    (installed.root / "pyproject.toml").touch()
    ended = installed.run("say", "hello")
    assert installed.calls() == []
    assert (ended.out, ended.err) == ("['say', 'hello']\n", "")


def test_no_argument_lists_the_commands_and_installs_nothing(checkout: Checkout) -> None:
    ended = checkout.run()
    assert checkout.calls() == []
    assert (ended.code, ended.err) == (0, "")
    assert "verify-golden" in ended.out


@pytest.mark.parametrize("module", ["some_thing", "some-thing"])
def test_command_with_a_hyphen_reaches_its_module(checkout: Checkout, module: str) -> None:
    folder = checkout.root / "workers/management/commands"
    folder.mkdir(parents=True)
    (folder / f"{module}.py").touch()
    ended = checkout.run("some-thing", "some-folder")
    assert ended.out == f"['{module}', 'some-folder']\n"


def test_test_command_installs_the_dev_extra_once(installed: Checkout) -> None:
    installed.run("test", "-k", "name")
    assert installed.calls() == SECOND_RUN
    assert "pytest" in (installed.root / ".venv/.tts-list").read_text()
    installed.run("test")
    installed.run("demo")
    assert installed.calls() == []


def test_list_of_requirements_leaves_torch_to_its_own_installer(checkout: Checkout) -> None:
    checkout.run("demo")
    listed = (checkout.root / ".venv/.tts-list").read_text().splitlines()
    assert not [line for line in listed if line.startswith("torch")]
    assert [line for line in listed if line.startswith("safetensors")]
    assert not [line for line in listed if line.startswith("pytest")]


@pytest.mark.parametrize(
    "name", ["pyproject.toml", "constraints.txt", "ttsweb/install/torch_install.py"]
)
def test_changed_project_file_is_installed_again_whatever_its_age(
    installed: Checkout, name: str
) -> None:
    path = installed.root / name
    before = path.stat()
    path.write_text(path.read_text() + "\n# one line more\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    installed.run("demo")
    assert installed.calls() == SECOND_RUN


def test_moved_folder_gets_a_new_venv(installed: Checkout) -> None:
    installed.root = installed.root.rename(installed.root.with_name("elsewhere"))
    ended = installed.run("demo")
    assert installed.calls() == FIRST_RUN
    assert ended.out == "['demo']\n"


def test_link_to_another_checkouts_venv_is_replaced_and_that_one_kept(checkout: Checkout) -> None:
    checkout.run("demo")
    others = checkout.root / "other"
    (checkout.root / ".venv").rename(others)
    (others / ".tts-made").write_text("of another checkout\n")
    (checkout.root / ".venv").symlink_to(others)
    checkout.calls()

    ended = checkout.run("demo")

    assert (ended.code, checkout.calls()) == (2, FIRST_RUN), ended.err
    assert not (checkout.root / ".venv").is_symlink()
    assert (others / "bin" / "python").exists()


def test_active_venv_that_no_longer_fits_is_made_with_another_python(installed: Checkout) -> None:
    active = installed.root / ".venv/bin"
    add_python(active, "python3.14")
    (installed.root / ".venv/.tts-made").write_text("somewhere else")
    ended = installed.run("demo", PATH=f"{active}:{installed.bin}")
    assert installed.calls() == FIRST_RUN
    assert ended.out == "['demo']\n"


def test_script_finds_its_folder_through_links(checkout: Checkout, tmp_path: Path) -> None:
    first, second = tmp_path / "first link", checkout.bin / "tts"
    first.symlink_to(checkout.root / "tts")
    second.symlink_to(Path("..") / "first link")
    ended = Ended.wait_for(checkout.start_as(second, "demo"))
    assert ended.out == "['demo']\n"
    assert (checkout.root / ".venv").is_dir()


def test_killed_installation_is_done_again_from_the_start(checkout: Checkout) -> None:
    checkout.run("demo", STUB_PIP_KILLS="yes")
    checkout.calls()
    ended = checkout.run("demo")
    assert checkout.calls() == FIRST_RUN
    assert ended.out == "['demo']\n"
    assert (checkout.root / ".tts-lock").exists()
    assert "Waiting" not in ended.err, "the lock of a killed run holds nobody up"


def test_killed_upgrade_is_done_again_from_the_start(checkout: Checkout) -> None:
    checkout.run("demo")
    with (checkout.root / "constraints.txt").open("a") as constraints:
        constraints.write("# changed\n")
    killed = checkout.run("demo", STUB_PIP_KILLS="yes")
    checkout.calls()
    checkout.run("demo")

    assert killed.code != 0
    assert checkout.calls() == FIRST_RUN


def test_failed_installation_is_tried_again_in_the_same_venv(checkout: Checkout) -> None:
    failed = checkout.run("demo", STUB_PIP_FAILS="ERROR: No matching distribution found for x")
    checkout.calls()
    ended = checkout.run("demo")

    assert (failed.code, failed.out) == (1, "")
    assert "No matching distribution found for x" in failed.err
    assert checkout.calls() == SECOND_RUN
    assert ended.out == "['demo']\n"


def test_missing_network_is_one_clear_line(checkout: Checkout) -> None:
    ended = checkout.run("demo", STUB_PIP_FAILS="NewConnectionError: x\nERROR: y")
    lines = [line for line in ended.err.splitlines() if line.startswith("tts: ")]
    assert lines == [
        "tts: the package index cannot be reached: check network and proxy, then run this again"
    ]
    assert ended.code == 1


def test_two_first_runs_at_once_install_once(checkout: Checkout) -> None:
    first = checkout.start("demo", STUB_PIP_SLEEPS="0.5")
    second = checkout.start("say", STUB_PIP_SLEEPS="0.5")
    results = [Ended.wait_for(first), Ended.wait_for(second)]
    assert checkout.calls() == FIRST_RUN
    assert [result.out for result in results] == ["['demo']\n", "['say']\n"]
    assert sum("Waiting for another installation" in result.err for result in results) == 1


@pytest.mark.parametrize("version", ["", "(3, 10)", "(3, 15)", "(2, 7)"])
def test_missing_python_and_one_of_another_version_is_one_line_with_the_remedy(
    checkout: Checkout, version: str
) -> None:
    if not version:
        (checkout.bin / "python3.12").unlink()
    ended = checkout.run("demo", STUB_VERSION=version)
    assert (ended.code, ended.out, checkout.calls()) == (1, "", [])
    assert len(ended.err.splitlines()) == 1
    assert "no Python from 3.11 to 3.14 was found" in ended.err
    assert "install python" in ended.err


@pytest.mark.parametrize("version", ["(3, 11)", "(3, 14)"])
def test_oldest_and_newest_supported_python_are_taken(checkout: Checkout, version: str) -> None:
    ended = checkout.run("demo", STUB_VERSION=version)
    assert ended.out == "['demo']\n"


def test_python_without_venv_is_one_line_with_the_remedy(checkout: Checkout) -> None:
    ended = checkout.run("demo", STUB_NO_VENV="yes")
    assert ended.code == 1
    assert len(ended.err.splitlines()) == 1
    assert "apt install python3-venv" in ended.err
    assert checkout.calls() == []


def test_python_named_by_the_operator_is_taken(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.bin / "python3.12").unlink()
    folder = tmp_path / "own python"
    folder.mkdir()
    python = add_python(folder, "py")
    ended = checkout.run("demo", TTS_PYTHON=str(python))

    assert checkout.calls() == FIRST_RUN
    assert ended.out == "['demo']\n"


@pytest.mark.parametrize(
    ("name", "value", "code", "expected"),
    [
        ("TTS_PYTHON", "/no/such/python", 1, "a Python from 3.11 to 3.14"),
        ("TTS_TORCH", "gpu", 2, "cpu or cuda"),
    ],
)
def test_bad_value_stops_before_anything_is_installed(
    checkout: Checkout, name: str, value: str, code: int, expected: str
) -> None:
    ended = checkout.run("demo", **{name: value})
    assert (ended.code, checkout.calls()) == (code, [])
    assert ended.err == f"tts: {name}='{value}': expected {expected}\n"


def test_other_python_named_later_gets_a_new_venv(installed: Checkout) -> None:
    add_python(installed.bin, "python3.13")
    installed.run("demo", TTS_PYTHON="python3.13")
    assert installed.calls() == FIRST_RUN
    installed.run("demo")
    assert installed.calls() == []


def test_forced_torch_build_reaches_the_installer_also_later(installed: Checkout) -> None:
    installed.run("demo", TTS_TORCH="cpu")
    assert installed.calls()[-1] == "torch cpu"
    installed.run("demo")
    installed.run("demo", TTS_TORCH="cpu")
    assert installed.calls() == []


def test_failed_torch_installer_stops_the_command_with_its_exit_code(checkout: Checkout) -> None:
    ended = checkout.run("demo", STUB_TORCH_EXIT="3")
    assert (ended.code, ended.out) == (3, "")
    checkout.calls()
    assert checkout.run("demo").out == "['demo']\n"
    assert checkout.calls() == SECOND_RUN


def test_venv_made_by_hand_is_taken_over(checkout: Checkout) -> None:
    folder = checkout.root / ".venv/bin"
    folder.mkdir(parents=True)
    add_python(folder, "python")
    checkout.run("demo")
    assert checkout.calls() == SECOND_RUN
