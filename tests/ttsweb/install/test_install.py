"""Steps of an installation: the list for pip, the lock, and the way to PyTorch by a stand-in."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from synth.engine.codec import torchaudio_import
from ttsweb.install import steps, torch_install
from ttsweb.install.steps import list_requirements
from ttsweb.install.torch_install import Installed, InstallError, Machine, Outcome, TorchInstaller

PYPROJECT = """
[project]
dependencies = ["django>=5.2", "torchlike>=1", "celery[redis]>=5.7,<6"]
[project.optional-dependencies]
engine = ["torch>=2.11", "torchaudio", "safetensors; python_version > '3'"]
dev = ["pytest"]
"""


@pytest.fixture
def pyproject(tmp_path: Path) -> Path:
    path = tmp_path / "pyproject.toml"
    path.write_text(PYPROJECT)
    return path


def test_list_leaves_out_pytorch_and_nothing_else(pyproject: Path) -> None:
    base = ["django>=5.2", "torchlike>=1", "celery[redis]>=5.7,<6"]
    assert list_requirements(pyproject, []) == base
    engine = [*base, "safetensors; python_version > '3'", "pytest"]
    assert list_requirements(pyproject, ["engine", "dev"]) == engine
    with pytest.raises(KeyError):
        list_requirements(pyproject, ["enginee"])


def test_script_needs_the_standard_library_alone(pyproject: Path) -> None:
    command = [sys.executable, "-ISP", steps.__file__, "list", str(pyproject), "dev"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "pytest"


# Writes the times at which it starts and ends.
BUSY = "import sys, time; print(time.time()); time.sleep(0.3); print(time.time())"


def start(lock: Path, *command: str) -> subprocess.Popen[str]:
    """Start `command` under the lock, with nothing but the standard library."""
    command = (sys.executable, "-ISP", steps.__file__, "lock", str(lock), *command)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_commands_under_one_lock_never_overlap(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    processes = [start(lock, sys.executable, "-c", BUSY) for _ in range(3)]
    spans = [tuple(map(float, process.communicate()[0].split())) for process in processes]
    spans.sort()
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans))


def test_child_of_a_killed_holder_still_holds_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holder = start(lock, "/bin/sh", "-c", "sleep 0.8 & echo started; wait")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "started\n"
    began = time.monotonic()
    holder.kill()
    err = start(lock, "/bin/sh", "-c", ":").communicate()[1]
    assert time.monotonic() - began > 0.5
    assert "Waiting for another installation" in err
    holder.communicate()


@pytest.mark.parametrize("code", [0, 3])
def test_old_lock_file_holds_nobody_up_and_the_exit_code_comes_back(
    tmp_path: Path, code: int
) -> None:
    (tmp_path / "lock").write_text("12345\n")
    process = start(tmp_path / "lock", "/bin/sh", "-c", f"echo done; exit {code}")
    assert process.communicate(timeout=180) == ("done\n", "")
    assert process.returncode == code


LINUX = Machine("Linux", "x86_64", has_nvidia=False)
NVIDIA = Machine("Linux", "x86_64", has_nvidia=True)
MAC = Machine("Darwin", "arm64", has_nvidia=False)
INTEL_MAC = Machine("Darwin", "x86_64", has_nvidia=False)

CPU_PACKAGES = ("torch", "sympy", "networkx")
CUDA_PACKAGES = (*CPU_PACKAGES, "nvidia-cublas", "cuda-toolkit", "triton")


@dataclass
class StubInstallers:
    """Answers for pip and uv; `plain` and `own_index` are what each would install, None: fails."""

    plain: tuple[str, ...] | None
    own_index: tuple[str, ...] | None = None
    fails: frozenset[str] = frozenset()
    imports: tuple[tuple[int, str], ...] = ((0, "torchaudio 2.11.0 imports"),)  # one a check
    calls: list[str] = field(default_factory=list)

    def __call__(self, command: Sequence[str]) -> Outcome:
        """Answer one command, and note the installations it would have made."""
        if command[1] == str(torch_install.TORCHAUDIO_IMPORT):
            code, line = self.imports[0]
            self.imports = self.imports[1:] or self.imports
            return Outcome((), code, f"{line}\n", "")
        words = list(command[2:])  # without the interpreter and its -m
        if "--dry-run" in words:
            return self._trial(words)
        target = next(word for word in reversed(words[:-2]) if not word.startswith("-"))
        self.calls.append(" ".join([words[0], *_options(words), target]))
        return Outcome((), 1 if target in self.fails else 0, "", "ERROR: stub")

    def _trial(self, words: list[str]) -> Outcome:
        packages = self.own_index if words[0] == "uv" else self.plain
        if packages is None:
            return Outcome((), 1, "", "WARNING: retrying\nERROR: No matching distribution found")
        if words[0] == "uv":
            return Outcome((), 0, "", "".join(f" + {name}==1.0\n" for name in packages))
        report = {"install": [{"metadata": {"name": name}} for name in packages]}
        return Outcome((), 0, json.dumps(report), "")


def _options(words: list[str]) -> list[str]:
    kept = ("--torch-backend", "--no-deps", "--force-reinstall")
    return [word for word in words if word.startswith(kept)]


@pytest.fixture
def constraints(tmp_path: Path) -> Path:
    path = tmp_path / "constraints.txt"
    pins = "# pins\nnumpy==2.4.6\ntorch==2.13.0\ntorchaudio==2.11.0 ; python_version > '3'\n"
    path.write_text(pins)
    return path


def install(
    constraints: Path,
    stub: StubInstallers,
    machine: Machine = LINUX,
    forced: torch_install.Build | None = None,
    installed: Installed | None = None,
) -> list[str]:
    """Return the lines that a person saw; the calls that install are the stub's."""
    said: list[str] = []
    found = {"machine": machine, "forced": forced, "installed": installed}
    TorchInstaller(constraints=constraints, run=stub, say=said.append, **found).install()  # type: ignore[arg-type]
    return said


PLAIN, AUDIO = "pip torch==2.13.0", "pip --no-deps torchaudio==2.11.0"
FORCED_PLAIN = "pip --force-reinstall torch==2.13.0"
BY_UV = ["pip uv", "uv --torch-backend=auto torch==2.13.0",
         "uv --torch-backend=auto --no-deps torchaudio==2.11.0"]  # fmt: skip
NO_UV = StubInstallers(CUDA_PACKAGES, CPU_PACKAGES, fails=frozenset({"uv"}))


@pytest.mark.parametrize(
    ("stub", "machine", "forced", "installed", "calls", "said"),
    [
        # An installed PyTorch of the pinned version, and of the forced build, is kept.
        (StubInstallers(CUDA_PACKAGES), LINUX, None, "2.13.0 cpu", [AUDIO], []),
        (StubInstallers(CUDA_PACKAGES), LINUX, "cuda", "2.13.0 cuda", [AUDIO], []),
        (StubInstallers(CPU_PACKAGES), LINUX, None, "2.12.1 cpu", [FORCED_PLAIN, AUDIO], []),
        (StubInstallers(CPU_PACKAGES), LINUX, "cpu", "2.13.0 cuda", [FORCED_PLAIN, AUDIO], []),
        (StubInstallers(CUDA_PACKAGES), LINUX, "cuda", "2.13.0 cpu", [FORCED_PLAIN, AUDIO],
         ["2.7 GB"]),
        # Plain pip, where its dry run lists no CUDA package; one is enough to turn to uv.
        (StubInstallers(CPU_PACKAGES), LINUX, None, None, [PLAIN, AUDIO], []),
        (StubInstallers(CPU_PACKAGES), MAC, None, None, [PLAIN, AUDIO], []),
        *((StubInstallers(("torch", one), CPU_PACKAGES), LINUX, None, None, BY_UV, [])
          for one in ("nvidia-cudnn-cu13", "cuda-bindings", "triton")),
        # Without PyTorch's own index, or uv, plain pip follows once the size was announced.
        (StubInstallers(CUDA_PACKAGES), LINUX, None, None, ["pip uv", PLAIN, AUDIO],
         ["own package index cannot be reached", "2.7 GB"]),
        (NO_UV, LINUX, None, None, ["pip uv", PLAIN, AUDIO], ["", "2.7 GB"]),
        (StubInstallers(CUDA_PACKAGES, CUDA_PACKAGES), LINUX, None, None, ["pip uv", PLAIN, AUDIO],
         ["uv finds only the CUDA build", "2.7 GB"]),
        # An NVIDIA device gets the CUDA build, and is told so where there is none.
        (StubInstallers(CUDA_PACKAGES, CPU_PACKAGES), NVIDIA, None, None, [PLAIN, AUDIO],
         ["2.7 GB"]),
        (StubInstallers(CPU_PACKAGES), NVIDIA, None, None, [PLAIN, AUDIO], ["without CUDA"]),
        (StubInstallers(CUDA_PACKAGES, CPU_PACKAGES), NVIDIA, "cpu", None,
         [one.replace("auto", "cpu") for one in BY_UV], []),
        (StubInstallers(CPU_PACKAGES, fails=frozenset({"torchaudio==2.11.0"})), LINUX, None, None,
         [PLAIN, AUDIO],
         ["PyTorch: torchaudio could not be installed, so the built-in resampler is used"]),
    ],
)  # fmt: skip
def test_way_that_is_taken(
    stub: StubInstallers,
    machine: Machine,
    forced: torch_install.Build | None,
    installed: str | None,
    calls: list[str],
    said: list[str],
    constraints: Path,
) -> None:
    version, _, build = (installed or "").partition(" ")
    found = Installed(version, "cuda" if build == "cuda" else "cpu") if installed else None
    lines = install(constraints, stub, machine, forced, found)
    assert stub.calls == calls
    assert [words for words, line in zip(said, lines, strict=True) if words not in line] == []


@pytest.mark.parametrize(
    ("stub", "machine", "forced", "words", "calls"),
    [
        (StubInstallers(CPU_PACKAGES), INTEL_MAC, None,
         r"no version 2\.13\.0 for Macs with an Intel processor", []),
        (StubInstallers(CUDA_PACKAGES), LINUX, "cpu", "Unset TTS_TORCH", ["pip uv"]),
        (StubInstallers(CPU_PACKAGES), LINUX, "cuda", "TTS_TORCH=cuda", []),
        (StubInstallers(None), LINUX, None,
         r"torch==2\.13\.0 .* No matching distribution found$", []),
        (StubInstallers(CPU_PACKAGES, fails=frozenset({"torch==2.13.0"})), LINUX, None,
         "cannot be installed", [PLAIN]),
    ],
)  # fmt: skip
def test_what_cannot_be_installed_is_refused_with_the_reason(
    stub: StubInstallers,
    machine: Machine,
    forced: torch_install.Build | None,
    words: str,
    calls: list[str],
    constraints: Path,
) -> None:
    with pytest.raises(InstallError, match=words):
        install(constraints, stub, machine, forced)
    assert stub.calls == calls


WITHOUT_BINARY = (3, "torchaudio 2.11.0 without its binary part, which cannot be loaded (OSError)")
REPLACED = "uv --torch-backend=auto --no-deps --force-reinstall torchaudio==2.11.0"


@pytest.mark.parametrize(
    ("own_index", "imports", "calls", "said"),
    [
        # One that does not fit is replaced by the build of the own index.
        (CPU_PACKAGES, (WITHOUT_BINARY, (0, "torchaudio 2.11.0+cpu imports")), [REPLACED], []),
        (None, (WITHOUT_BINARY,), [], [f"PyTorch: {WITHOUT_BINARY[1]}; its resampling is used"]),
        (None, ((1, "torchaudio cannot be imported (x)"),), [],
         ["PyTorch: torchaudio cannot be imported (x); the built-in resampling is used"]),
    ],
)  # fmt: skip
def test_torchaudio_is_imported_after_installing_and_what_does_not_work_is_said(
    constraints: Path,
    own_index: tuple[str, ...] | None,
    imports: tuple[tuple[int, str], ...],
    calls: list[str],
    said: list[str],
) -> None:
    stub = StubInstallers(plain=CUDA_PACKAGES, own_index=own_index, imports=imports)
    assert install(constraints, stub, installed=Installed("2.13.0", "cpu")) == said
    assert stub.calls == [AUDIO, "pip uv", *calls]


@pytest.mark.thorough
def test_the_installers_check_is_the_engines_own_import() -> None:
    checked = torch_install.call([sys.executable, str(torch_install.TORCHAUDIO_IMPORT)])
    assert checked.returncode in (0, torch_install.EXIT_WITHOUT_BINARY)
    assert torch_install.EXIT_WITHOUT_BINARY == torchaudio_import.EXIT_WITHOUT_BINARY


def test_constraints_without_a_torch_pin_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "constraints.txt"
    path.write_text("torch==2.13.0\n")
    with pytest.raises(InstallError, match="no line torchaudio==VERSION"):
        torch_install.read_pins(path)


@pytest.mark.parametrize("value", ["gpu", "CPU", "cu130"])
def test_bad_forced_build_ends_with_a_sentence_and_exit_code_2(
    value: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    constraints: Path,
) -> None:
    monkeypatch.setenv("TTS_TORCH", value)
    assert torch_install.main([str(constraints)]) == 2
    assert capsys.readouterr().err == f"tts: TTS_TORCH={value!r}: expected cpu or cuda\n"


def test_installed_build_is_told_without_importing_torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    import torch

    found = torch_install.find_installed()
    assert found is not None
    assert found.version == torch.__version__.split("+")[0]
    assert found.build == ("cuda" if torch.version.cuda else "cpu")


def test_device_counts_if_its_driver_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    without = Machine.detect(lambda command: Outcome(command, 9, "No devices were found\n", ""))
    with_device = Machine.detect(lambda command: Outcome(command, 0, "GPU 0: NVIDIA H100\n", ""))
    assert without.has_nvidia == Path("/proc/driver/nvidia/version").exists()
    assert with_device.has_nvidia
