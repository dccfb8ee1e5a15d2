"""Install PyTorch without surprises; `./tts` runs this file by its path, with .venv's Python.

On Linux the plain package brings some 2.7 GB of CUDA libraries, even where no NVIDIA device is.
So, in this order: an installed PyTorch of the pinned version is kept; plain pip, where its dry run
lists no CUDA package; uv, which finds the build that fits the machine on PyTorch's own index; and
where that index cannot be reached, plain pip after announcing the size.

Only the standard library is imported: nothing else is installed yet.
"""

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CUDA_SIZE = "some 2.7 GB"
EXIT_USAGE = 2
# The engine's own import of torchaudio, and its exit code where the binary part was left out.
TORCHAUDIO_IMPORT = Path(__file__).parents[2] / "synth/engine/codec/torchaudio_import.py"
EXIT_WITHOUT_BINARY = 3

# What only a CUDA build needs, as a package's name begins. triton comes with no CPU build.
_CUDA_PACKAGE = re.compile(r"(nvidia-|cuda-|triton\b)", re.IGNORECASE)

Build = Literal["cpu", "cuda"]


class InstallError(Exception):
    """PyTorch cannot be installed; the message says what a person can do."""

    exit_code = 1


class UsageError(InstallError):
    exit_code = EXIT_USAGE


@dataclass(frozen=True)
class Machine:
    """What the choice of a build depends on; `system` and `arch` as `platform` spells them."""

    system: str
    arch: str
    has_nvidia: bool

    @classmethod
    def detect(cls, run: "Runner") -> "Machine":
        """Look at this machine; a device counts where its driver answers."""
        has_nvidia = Path("/proc/driver/nvidia/version").exists()
        if not has_nvidia and (program := shutil.which("nvidia-smi")):  # as under WSL
            has_nvidia = run([program, "--list-gpus"]).stdout.startswith("GPU ")
        return cls(platform.system(), platform.machine(), has_nvidia)


@dataclass(frozen=True)
class Installed:
    """The PyTorch that is there: its version without the local part, and its build."""

    version: str
    build: Build


Outcome = subprocess.CompletedProcess[str]
Runner = Callable[[Sequence[str]], Outcome]


@dataclass
class TorchInstaller:
    """Chooses a way to install PyTorch, and takes it.

    Attributes:
        constraints: the file with the pins, handed on to every installer.
        forced: the build that `TTS_TORCH` asks for.
        run: calls a command and waits; the arguments begin with the program.
        say: tells the person one line.
    """

    constraints: Path
    machine: Machine
    forced: Build | None
    installed: Installed | None
    run: Runner
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        pins = read_pins(self.constraints)
        self._torch, self._torchaudio = (f"{one}=={pins[one]}" for one in ("torch", "torchaudio"))

    def install(self) -> None:
        """Install PyTorch and then torchaudio, or keep what fits.

        Raises:
            InstallError: no build fits this machine, or none can be had.
        """
        there = self.installed
        is_pinned = there is not None and f"torch=={there.version}" == self._torch
        if there is not None and is_pinned and self.forced in (None, there.build):
            self._add_torchaudio(self._pip)
            return
        if (self.machine.system, self.machine.arch) == ("Darwin", "x86_64"):
            raise InstallError(
                f"PyTorch has no version {self._torch.split('==')[1]} for Macs with an "
                "Intel processor; use a Mac with Apple silicon, or Linux"
            )
        brings_cuda = self._brings_cuda(self._dry_run_pip())
        wants_cuda = self.forced == "cuda" or (self.forced is None and self.machine.has_nvidia)
        if brings_cuda and not wants_cuda:
            self._install_without_cuda()
        else:
            self._install_plain(brings_cuda=brings_cuda)

    def _install_plain(self, *, brings_cuda: bool) -> None:
        """Install what plain pip finds, and say which build it is where that matters."""
        if brings_cuda:
            self.say(f"PyTorch: installing the CUDA build, a download of {CUDA_SIZE}")
        elif self.forced == "cuda":
            raise InstallError("TTS_TORCH=cuda: the package index offers only a build without CUDA")
        elif self.machine.has_nvidia:
            self.say(
                "PyTorch: this machine has an NVIDIA device, but the package index offers "
                "only a build without CUDA"
            )
        self._must(self._pip, *self._again(), self._torch)
        self._add_torchaudio(self._pip)

    def _install_without_cuda(self) -> None:
        reason = self._why_not_uv()
        if reason is None:
            self._must(self._uv, *self._again(), self._torch)
            self._add_torchaudio(self._uv)
            return
        if self.forced == "cpu":
            raise InstallError(
                f"TTS_TORCH=cpu: {reason}, and the plain package is the CUDA build. Unset "
                f"TTS_TORCH to install that one ({CUDA_SIZE}); it also runs on the CPU"
            )
        self.say(
            f"PyTorch: {reason}; this machine has no NVIDIA device, but the plain package "
            "includes CUDA"
        )
        self._install_plain(brings_cuda=True)

    def _again(self) -> list[str]:
        return ["--force-reinstall"] if self.installed else []

    def _why_not_uv(self) -> str | None:
        """Return why uv cannot give a build without CUDA, or None if it can."""
        if self._pip("--quiet", "uv").returncode != 0:
            return "uv could not be installed"
        trial = self._uv("--dry-run", *self._again(), self._torch)
        if trial.returncode != 0:
            return "PyTorch's own package index cannot be reached"
        # uv prints what it would install as "+ name==version", on standard error.
        lines = f"{trial.stdout}\n{trial.stderr}".splitlines()
        names = (line.strip().removeprefix("+").strip() for line in lines)
        return "uv finds only the CUDA build" if self._brings_cuda(names) else None

    def _dry_run_pip(self) -> list[str]:
        options = ["--quiet", "--dry-run", "--report", "-", *self._again()]
        outcome = self._pip(*options, self._torch)
        if outcome.returncode != 0:
            raise InstallError(_sentence(self._torch, outcome))
        report = json.loads(outcome.stdout)
        return [item["metadata"]["name"] for item in report["install"]]

    def _add_torchaudio(self, installer: Callable[..., Outcome]) -> None:
        """Install torchaudio without what it asks for, import it, and say what does not work.

        A build that does not fit is replaced by the one of PyTorch's own index, if that can be
        reached. The service runs without torchaudio, and without its binary part.
        """
        if installer("--no-deps", self._torchaudio).returncode != 0:
            self.say(
                "PyTorch: torchaudio could not be installed, so the built-in resampler is used"
            )
            return
        importing = [sys.executable, str(TORCHAUDIO_IMPORT)]  # as the engine does, by itself
        check = self.run(importing)
        if check.returncode != 0 and installer != self._uv and self._why_not_uv() is None:
            self._uv("--no-deps", "--force-reinstall", self._torchaudio)
            check = self.run(importing)
        if check.returncode == 0:
            return
        used = "its" if check.returncode == EXIT_WITHOUT_BINARY else "the built-in"
        said = (check.stdout or check.stderr).strip()
        said = said or f"importing torchaudio ended with code {check.returncode}"
        self.say(f"PyTorch: {said.splitlines()[-1]}; {used} resampling is used")

    def _must(self, installer: Callable[..., Outcome], *arguments: str) -> None:
        outcome = installer(*arguments)
        if outcome.returncode != 0:
            raise InstallError(_sentence(self._torch, outcome))

    def _pip(self, *arguments: str) -> Outcome:
        command = [sys.executable, "-m", "pip", "install"]
        return self.run([*command, *arguments, "-c", str(self.constraints)])

    def _uv(self, *arguments: str) -> Outcome:
        backend = self.forced or "auto"
        where = ["--python", sys.executable, f"--torch-backend={backend}"]
        command = [sys.executable, "-m", "uv", "pip", "install", *where, *arguments]
        return self.run([*command, "-c", str(self.constraints)])

    @staticmethod
    def _brings_cuda(names: Iterable[str]) -> bool:
        return any(_CUDA_PACKAGE.match(name) for name in names)


def read_pins(constraints: Path) -> dict[str, str]:
    """Return name -> version of each line `name==version` of a constraints file."""
    text = constraints.read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;#]+)", text, re.MULTILINE))
    for name in ("torch", "torchaudio"):
        if name not in pins:
            raise InstallError(f"{constraints} has no line {name}==VERSION")
    return pins


def find_installed() -> Installed | None:
    """Return the PyTorch of this environment, told by its metadata: it is not imported."""
    try:
        torch = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    has_cuda = any(_CUDA_PACKAGE.match(requirement) for requirement in torch.requires or [])
    is_cuda = has_cuda and platform.system() == "Linux"  # elsewhere their markers leave them out
    return Installed(torch.version.split("+")[0], "cuda" if is_cuda else "cpu")


def read_forced(environ: Mapping[str, str]) -> Build | None:
    """Return the build that `TTS_TORCH` asks for, or None.

    Raises:
        InstallError: it is neither `cpu` nor `cuda`.
    """
    value = environ.get("TTS_TORCH", "").strip()
    builds: dict[str, Build | None] = {"": None, "cpu": "cpu", "cuda": "cuda"}
    if value not in builds:
        raise UsageError(f"TTS_TORCH={value!r}: expected cpu or cuda")
    return builds[value]


def call(command: Sequence[str]) -> Outcome:
    """Run a command and wait for it; a long download shows its progress on a terminal."""
    if sys.stderr.isatty() and not {"--quiet", "--dry-run", "--list-gpus"} & set(command):
        finished = subprocess.run(command, stdout=sys.stderr, text=True, check=False)
        return Outcome(command, finished.returncode, "", "")
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main(arguments: Sequence[str]) -> int:
    """Install PyTorch by the constraints file that `arguments` names; return an exit code."""
    if len(arguments) != 1:
        _say("usage: torch_install.py CONSTRAINTS")
        return EXIT_USAGE
    try:
        machine, forced = Machine.detect(call), read_forced(os.environ)
        path = Path(arguments[0])
        TorchInstaller(path, machine, forced, find_installed(), run=call, say=_say).install()
    except InstallError as error:
        _say(f"tts: {error}")
        return error.exit_code
    return 0


def _say(line: str) -> None:
    """Tell the person: on standard error, standard output belongs to the command that follows."""
    sys.stderr.write(f"{line}\n")


def _sentence(requirement: str, outcome: Outcome) -> str:
    text = outcome.stderr.strip() or f"the installer failed with exit code {outcome.returncode}"
    return f"{requirement} cannot be installed: {text.splitlines()[-1].strip()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
