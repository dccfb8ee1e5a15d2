"""Feed the readers of strangers' files with files that no program writes: `./tts fuzz`.

Each target reads bytes as the product does and may refuse them by its own errors alone; another
exception, a crash, 20 seconds without an end or 2 GB of memory is a finding. Where atheris is
installed the inputs are guided by the coverage of our code (libFuzzer); elsewhere they are mutated
seeds by chance. Files in tests/data/fuzz/TARGET are the seeds; findings are put beside them, where
a test reads them from then on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
SEEDS = PROJECT / "tests" / "data" / "fuzz"
INPUT_SECONDS = 20
PROCESS_SECONDS = 300
MEMORY_MEGABYTES = 2000
MAX_INPUT_BYTES = 200_000
INSTRUMENTED = ["synth.books", "synth.text", "synth.api", "voices", "ttsweb.zips", "ttsweb.http",
                "workers.audio"]  # fmt: skip
ZIPPED = ("epub", "docx", "voice")  # whose members are mutated, each with a right checksum


def _audio() -> Callable[[bytes], None]:
    from voices.clip_checks import ClipRejectedError, check_clip
    from workers.audio.clip_child import decode
    from workers.audio.clips import ClipError

    def read(content: bytes) -> None:
        try:
            container = check_clip(content)
            with tempfile.TemporaryDirectory() as folder:
                source = Path(folder) / "clip"
                source.write_bytes(content)
                decode(source, Path(folder) / "mono", container=container, max_seconds=60)
        except (ClipError, ClipRejectedError, MemoryError):  # the child answers with all three
            pass

    return read


def _book(name: str) -> Callable[[], Callable[[bytes], None]]:
    def make() -> Callable[[bytes], None]:
        from synth.books.book import BookRejectedError, book_to_json
        from synth.books.detect import read_book
        from synth.books.plan import plan_book
        from synth.books.rules import Rules

        def read(content: bytes) -> None:
            try:
                book = read_book(content, f"book.{name}")
                book_to_json(book)
                plan_book(book, Rules())
            except (BookRejectedError, RecursionError):  # the child that reads books tells both
                pass

        return read

    return make


def _jsonl() -> Callable[[bytes], None]:
    from rest_framework.exceptions import APIException

    from synth.api.batches.entries import BadEntryError, entries_of_lines, read_manifest
    from synth.api.batches.texts import BatchOptions, OrderReader
    from synth.models import PRIORITIES
    from ttsweb.refusals import RefusedError

    known: tuple[type[Exception], ...] = (APIException, RefusedError, BadEntryError)
    options = BatchOptions(priority=next(iter(PRIORITIES.values())))

    def read(content: bytes) -> None:
        for reader in (entries_of_lines, _manifest_of(read_manifest)):
            try:
                entries = reader(io.BytesIO(content), max_items=1000)
            except known:
                continue
            for entry in entries if reader is entries_of_lines else ():
                with contextlib.suppress(*known):
                    OrderReader(options).read(entry)

    return read


def _manifest_of(read_manifest: Any) -> Any:
    return lambda file, max_items: read_manifest(file.read(), most=max_items)


def _voice() -> Callable[[bytes], None]:
    from ttsweb.refusals import RefusedError
    from voices.archives import check_codes, open_archive, read_manifest
    from voices.clip_checks import ClipRejectedError, check_clip

    def read(content: bytes) -> None:
        try:
            with open_archive(io.BytesIO(content), max_bytes=50_000_000) as archive:
                for clip in read_manifest(archive).clips:
                    check_clip(archive.read(clip.file, max_bytes=25_000_000))
                    for codes in clip.codes:
                        check_codes(archive.read(codes.file, max_bytes=5_000_000))
        except (RefusedError, ClipRejectedError):
            pass

    return read


TARGETS: dict[str, Callable[[], Callable[[bytes], None]]] = {
    "audio": _audio,
    "epub": _book("epub"),
    "docx": _book("docx"),
    "pdf": _book("pdf"),
    "jsonl": _jsonl,
    "voice": _voice,
}


def reader_of(target: str) -> Callable[[bytes], None]:
    """Return what reads bytes as a target, and raises what nobody foresaw."""
    import django

    django.setup()
    return TARGETS[target]()


def seeds_of(target: str) -> list[Path]:
    return sorted(path for path in (SEEDS / target).iterdir() if path.is_file())


class FuzzingError(Exception):
    """A process ended that had found nothing."""


@dataclasses.dataclass
class Result:
    """What the fuzzing of one target came to."""

    target: str
    minutes: float
    inputs: int
    edges: int | None  # of our code, that inputs have come through; None without guidance
    findings: list[str]


def fuzz(target: str, minutes: float, folder: Path, say: Callable[[str], object]) -> Result:
    """Fuzz a target for so long, in processes of their own: a finding ends one.

    None lasts long: decoders leave memory behind that the product, with a process for each file,
    never misses.
    """
    corpus = folder / target
    corpus.mkdir(parents=True, exist_ok=True)
    known = {path.name for path in seeds_of(target)}
    end, began, inputs, edges = time.monotonic() + 60 * minutes, time.monotonic(), 0, None
    while (left := int(end - time.monotonic())) > 0:
        num_seeds = len(seeds_of(target))
        seconds = min(left, PROCESS_SECONDS)
        command = [sys.executable, "-m", "lab.fuzz", target, str(seconds), str(corpus)]
        ended = subprocess.run(
            command, cwd=PROJECT, capture_output=True, text=True, errors="replace", check=False
        )
        counts = [int(one) for one in re.findall(r"^#(\d+)", ended.stderr, re.MULTILINE)]
        covered = [int(one) for one in re.findall(r" cov: (\d+)", ended.stderr)]
        inputs += max(counts, default=0)
        edges = max([*covered, edges or 0]) or None
        if ended.returncode == 0:
            continue
        say(f"{target}: {ended.stderr[-3000:]}")
        if len(seeds_of(target)) == num_seeds:
            raise FuzzingError(f"the fuzzing of {target} itself failed")
    found = sorted({path.name for path in seeds_of(target)} - known)
    return Result(target, (time.monotonic() - began) / 60, inputs, edges, found)


def mutate_zip(content: bytes, chance: random.Random, mutate: Callable[[bytes], bytes]) -> bytes:
    """Return an archive with one member changed and right checksums; other bytes as they are."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(one, archive.read(one)) for one in archive.infolist()[:100]]
    except Exception:  # noqa: BLE001  # what mutations have broken
        return mutate(content)
    if not members:
        return mutate(content)
    changed, target = chance.randrange(len(members)), io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for index, (member, inside) in enumerate(members):
            plain = zipfile.ZipInfo(member.filename)
            plain.compress_type = zipfile.ZIP_STORED  # so that parts of seeds can be found again
            archive.writestr(plain, mutate(inside) if index == changed else inside)
    return target.getvalue()


def _mutator_of(target: str, mutate: Callable[[bytes, int], bytes]) -> Any:
    def change(content: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if target in ZIPPED and chance.random() < 0.9:
            made = mutate_zip(content, chance, lambda part: mutate(part, len(part) + 200))
            return made if len(made) <= most else mutate(content, most)
        return mutate(content, most)

    return change


def run_guided(target: str, seconds: int, corpus: Path) -> None:
    """Fuzz by coverage; libFuzzer ends this process."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED):
        read = reader_of(target)
    dictionary = SEEDS / f"{target}.dict"
    arguments = [
        "fuzz", str(corpus), str(SEEDS / target), f"-max_total_time={seconds}",
        f"-timeout={INPUT_SECONDS}", f"-rss_limit_mb={MEMORY_MEGABYTES}",
        f"-max_len={MAX_INPUT_BYTES}", f"-artifact_prefix={SEEDS / target}/",
        "-print_final_stats=1",
        *([f"-dict={dictionary}"] if dictionary.exists() else []),
    ]  # fmt: skip

    def mutate(content: bytes, most: int) -> bytes:
        return bytes(atheris.Mutate(content, most))  # another one than before Fuzz()

    atheris.Setup(arguments, read, custom_mutator=_mutator_of(target, mutate))
    atheris.Fuzz()


def run_by_chance(target: str, seconds: int) -> int:
    """Fuzz with mutated seeds; return the exit status."""
    read, seeds = reader_of(target), [path.read_bytes() for path in seeds_of(target)]
    limit = MEMORY_MEGABYTES << 20
    resource.setrlimit(resource.RLIMIT_AS, (2 * limit, 2 * limit))
    signal.signal(signal.SIGALRM, _raise_timeout)
    change = _mutator_of(target, _mutate_bytes)
    until, count = time.monotonic() + seconds, 0
    for content in _endless(seeds):
        if time.monotonic() > until:
            break
        made = change(content, MAX_INPUT_BYTES, random.randrange(2**32))
        count += 1
        signal.alarm(INPUT_SECONDS)
        try:
            read(made)
        except Exception:  # noqa: BLE001  # whatever it is
            name = f"crash-{hashlib.sha1(made, usedforsecurity=False).hexdigest()}"
            (SEEDS / target / name).write_bytes(made)
            sys.stderr.write(f"#{count}\n{traceback.format_exc()}")
            return 1
        finally:
            signal.alarm(0)
    sys.stderr.write(f"#{count}\n")
    return 0


def _endless(seeds: list[bytes]) -> Iterator[bytes]:
    while True:
        yield random.choice(seeds)


def _raise_timeout(*_: object) -> None:
    raise TimeoutError(f"no end after {INPUT_SECONDS} seconds")


def _mutate_bytes(content: bytes, most: int) -> bytes:
    made = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        place = random.randrange(len(made) + 1)
        kind = random.randrange(4)
        if kind == 0 and place < len(made):
            made[place] ^= 1 << random.randrange(8)
        elif kind == 1:
            made[place:place] = random.choice(
                (b"\0", b"\xff" * 4, b"\x7f\xff", random.randbytes(8))
            )
        elif kind == 2:
            del made[place : place + random.randrange(1, 64)]
        else:
            start = random.randrange(len(made) + 1)
            made[place:place] = made[start : start + random.randrange(1, 256)]
    return bytes(made[:most])


def main() -> int:
    target, seconds, corpus = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if find_spec("atheris") is None:
        return run_by_chance(target, seconds)
    run_guided(target, seconds, corpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
