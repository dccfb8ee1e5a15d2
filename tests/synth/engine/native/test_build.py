"""Test build: what is compiled, where it is kept, and what is said else."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from synth.engine.native import build
from synth.engine.native.build import (
    TARGETS,
    NotCompiledError,
    Target,
    cache_folders,
    compiled_library,
    find_compiler,
    find_target,
    library_name,
)

AVX2 = next(target for target in TARGETS if target.name == "avx2")
WIDE = frozenset(TARGETS[0].needs) | set(AVX2.needs)


def script(folder: Path, name: str, text: str) -> Path:
    """Write a program; return it."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def unoptimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile quickly, where only the file is looked at."""
    flags = tuple("-O0" if flag == "-O3" else flag for flag in build._FLAGS)
    monkeypatch.setattr(build, "_FLAGS", flags)


@pytest.mark.parametrize(
    ("simd", "bf16", "flags", "name"),
    [
        ("AVX512", True, WIDE, "avx512_bf16"),
        ("AVX512", False, WIDE, "avx512_vnni"),
        ("AVX512_AMX", True, WIDE, "avx512_bf16"),
        ("AVX512", True, WIDE - {"avx512_bf16"}, "avx512_vnni"),
        ("AVX512", False, WIDE - {"avx512_vnni"}, "avx2"),
        ("AVX2", False, WIDE, "avx2"),
        ("AVX2", False, frozenset(AVX2.needs), "avx2"),
        ("DEFAULT", False, frozenset[str](), None),
        ("AVX2", False, frozenset({"avx2"}), None),  # no fused products
        ("DEFAULT", False, WIDE, None),  # PyTorch is told to use less than there is
    ],
)
def test_the_best_class_that_libraries_may_use_is_taken(
    simd: str, bf16: bool, flags: frozenset[str], name: str | None
) -> None:
    if name is None:
        with pytest.raises(NotCompiledError, match=f"need AVX2, but PyTorch uses {simd}"):
            find_target(simd, bf16=bf16, flags=flags)
    else:
        assert find_target(simd, bf16=bf16, flags=flags).name == name


def test_without_a_compiler_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(NotCompiledError, match="install gcc"):
        compiled_library(AVX2, [tmp_path / "cache"])
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("does", "words"),
    [
        (
            "echo 'frame.c:3: error: no such header' >&2; exit 1",
            r"frame\.c:3: error: no such header",
        ),
        ("exec sleep 60", "took more than"),
    ],
    ids=["fails", "hangs"],
)
def test_a_compiler_that_fails_or_hangs_is_quoted_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, words: str
) -> None:
    monkeypatch.setenv("CC", str(script(tmp_path, "cc", does)))
    monkeypatch.setattr(build, "_SECONDS", 3)
    with pytest.raises(NotCompiledError, match=words):
        compiled_library(AVX2, [tmp_path / "cache"])
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.compiler
@pytest.mark.usefixtures("unoptimised")
def test_it_is_compiled_once_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_library(AVX2, [tmp_path])
    made = tmp_path / library_name(AVX2)
    written = made.stat().st_mtime_ns
    monkeypatch.setenv("CC", "no-such-compiler")
    compiled_library(AVX2, [tmp_path / "empty", tmp_path])
    assert made.stat().st_mtime_ns == written
    assert [path.name for path in tmp_path.iterdir()] == [made.name]


@pytest.mark.thorough
@pytest.mark.compiler
@pytest.mark.usefixtures("unoptimised")
def test_several_that_compile_at_once_all_get_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: compiled_library(AVX2, [tmp_path]), range(4)))
    assert [path.name for path in tmp_path.iterdir()] == [library_name(AVX2)]


@pytest.mark.compiler
@pytest.mark.parametrize("mode", [0o755, 0o777], ids=["cut short", "others may have written it"])
@pytest.mark.usefixtures("unoptimised")
def test_a_file_that_is_not_whole_or_not_ours_is_made_again(tmp_path: Path, mode: int) -> None:
    path = tmp_path / library_name(AVX2)
    path.write_bytes(b"\x7fELF" if mode == 0o755 else b"not ours")
    path.chmod(mode)
    compiled_library(AVX2, [tmp_path])
    assert path.stat().st_size > 10_000
    assert path.read_bytes().startswith(b"\x7fELF")
    assert not path.stat().st_mode & 0o022


@pytest.mark.compiler
@pytest.mark.usefixtures("unoptimised")
def test_a_folder_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    compiled_library(AVX2, [blocked / "under", tmp_path / "good"])
    assert [path.name for path in (tmp_path / "good").iterdir()] == [library_name(AVX2)]
    with pytest.raises(NotCompiledError, match=r"no folder .* can be written"):
        compiled_library(Target("avx2", (*AVX2.needs, "bmi2")), [blocked / "under"])


def test_the_users_cache_comes_before_ours_and_other_flags_have_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    folders = cache_folders(tmp_path / "data")
    assert folders == [tmp_path / "xdg/ttsweb/native", tmp_path / "data/native"]
    assert cache_folders(None) == folders[:1]
    assert library_name(Target("avx2", (*AVX2.needs, "bmi2"))) != library_name(AVX2)


@pytest.mark.compiler
@pytest.mark.skipif(not Path("/usr/bin/gcc").exists(), reason="compares warnings of gcc")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_class_compiles_without_a_warning(target: Target, tmp_path: Path) -> None:
    command = ["gcc", *build._FLAGS, *target.flags, "-Wall", "-Wextra"]
    source = str(build.SOURCES / "frame.c")
    done = subprocess.run(
        [*command, "-Werror", "-o", str(tmp_path / "x.so"), source, "-lm"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.compiler
@pytest.mark.usefixtures("unoptimised")
def test_an_image_can_bring_it_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "BUILT", tmp_path / "built")
    assert build.main(["avx2"]) == 0
    monkeypatch.setenv("CC", "no-such-compiler")
    compiled_library(AVX2, [])
    assert find_compiler() is None
    assert build.main([]) == 1


def test_an_image_for_another_machine_goes_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "BUILT", tmp_path / "built")
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert build.main([]) == 0
    assert "aarch64" in capsys.readouterr().out
    assert not (tmp_path / "built").exists()


@pytest.mark.thorough
@pytest.mark.compiler
def test_a_process_of_another_user_environment_finds_the_same_file(tmp_path: Path) -> None:
    code = "from synth.engine.native.library import native_library as n; print(n().target)"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", code]
    found = [subprocess.check_output(command, env=environment, text=True) for _ in range(2)]
    assert found[0] == found[1]
    assert len(list((tmp_path / "ttsweb" / "native").iterdir())) == 1
