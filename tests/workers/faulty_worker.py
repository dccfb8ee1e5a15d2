"""Run `manage.py` with one fault built in; `TTS_TEST_FAULT` names it.

triple: every message is sent three times. poison: asking the engine for a text with the word
"poison" kills the process. full: no take and no book can be stored while the file `disk-is-full` is
there, and no file for people while `no-room-for-files` is. storing: the process dies before or
after it stores what it read of a book, as `die-storing` says.

row: it is killed and started again whenever it begins work on a row whose text form has the words
in `TTS_TEST_ROW`, with `TTS_TEST_BESIDE` only while it holds other work as well.

moments: it is killed, once for each file in the folder `die-at`, at the moment that the file is
named for, and started again at once, which `deaths.txt` counts; `done-14`: with 14 segments done,
another one is given to the engine. Whatever its engine is asked to render is written to
`asked.txt`.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def triple() -> None:
    """Send every message three times."""
    from ttsweb import work

    send = work._send

    def thrice(task: str, queue: str, *arguments: str) -> bool:
        return all([send(task, queue, *arguments) for _ in range(3)])

    work._send = thrice


def poison() -> None:
    """Die as a crash in native code would, without a word."""
    from synth.engine import Engine

    submit = Engine.submit

    def deadly(self: Engine, spec: Any, **options: Any) -> Any:
        if "poison" in spec.text:
            os._exit(66)
        return submit(self, spec, **options)

    Engine.submit = deadly  # type: ignore[method-assign]


def full() -> None:
    """Refuse to store things, as a full disk does, while a flag file is there."""
    from ttsweb.storage import AtomicFileSystemStorage

    save = AtomicFileSystemStorage._save
    folder = Path(os.environ["TTS_DATA_DIR"])
    flags = {name: folder / "disk-is-full" for name in ("takes", "books")}
    flags["exports"] = folder / "no-room-for-files"

    def refusing(self: AtomicFileSystemStorage, name: str, content: Any) -> str:
        flag = flags.get(name.partition("/")[0])
        if flag is not None and flag.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return save(self, name, content)

    AtomicFileSystemStorage._save = refusing  # type: ignore[method-assign]


def storing() -> None:
    """Die with a book read, before or after what was read is stored."""
    from workers.books import importing as book_import

    store = book_import._store
    moment = (Path(os.environ["TTS_DATA_DIR"]) / "die-storing").read_text()

    def deadly(source: Any, folder: Path, cover_type: str) -> dict[str, str]:
        if moment == "after":
            store(source, folder, cover_type)
        os._exit(66)

    book_import._store = deadly


def row() -> None:
    """Be killed whenever work on one row begins, or only while there is other work beside it."""
    from workers.process.worker_process import WorkerProcess

    run, words = WorkerProcess._run, os.environ["TTS_TEST_ROW"]
    waits_for_others = "TTS_TEST_BESIDE" in os.environ

    def deadly(self: WorkerProcess, claims: Any, work: Any, arguments: Any) -> None:
        for claim in claims:
            found = claim.kind.model._default_manager.filter(pk=claim.pk).first()
            if found is not None and words in str(found):
                until = time.monotonic() + 20
                while waits_for_others and len(self.held) == len(claims):
                    if self.is_isolating or time.monotonic() > until:
                        break
                    time.sleep(0.01)
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
        run(self, claims, work, arguments)

    WorkerProcess._run = deadly  # type: ignore[method-assign]
    _start_again()


def moments() -> None:
    """Be killed at each of the moments that files name, and note what the engine is asked for."""
    _die_around_chapters()
    _die_around_files()
    if "cpu" not in sys.argv:  # such a worker does without all that the engine needs
        _die_around_takes()
        _note_asked()
    _start_again()


def _start_again() -> None:
    """Return in a child, and in one more after each that was killed, as service managers do.

    The children are processes like all workers, but begin with everything imported.
    """
    from workers.process import run_worker  # noqa: F401

    if "cpu" not in sys.argv:
        import synth.engine.engine
        import synth.engine.loading.loaded_models  # noqa: F401
    parent, deaths = os.getpid(), Path(os.environ["TTS_DATA_DIR"]) / "deaths.txt"
    while child := os.fork():
        signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child, number))
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            sys.exit(os.waitstatus_to_exitcode(status))
        with deaths.open("a") as file:
            file.write(f"{child}\n")
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process at once when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(1)


def _die_at(moment: str) -> None:
    """Kill this process, once, if it is to die at this moment."""
    flag = Path(os.environ["TTS_DATA_DIR"]) / "die-at" / moment
    try:
        flag.unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _die_when_done() -> None:
    """Kill this process, once for each file `done-N`, if N segments are done."""
    from synth.models import Segment

    folder = Path(os.environ["TTS_DATA_DIR"]) / "die-at"
    counts = sorted(int(path.name.removeprefix("done-")) for path in folder.glob("done-*"))
    if counts and Segment.objects.filter(status="done").count() >= counts[0]:
        _die_at(f"done-{counts[0]}")


def _die_around_takes() -> None:
    """claimed: segments are claimed, and nothing else. rendering: some are done, and others are in
    the engine. rendered: a take is stored that no row names. stored: it has its row, and no
    segment has it.
    """
    from synth.models import Segment
    from synth.transitions.claims import claim_segments
    from workers.rendering import render
    from workers.site import local, segments
    from workers.site.segments import add_takes, store_take

    note = render._note_settled

    def claimed(*, hold: Any, **options: Any) -> None:
        def hold_and_die(made: Any) -> None:
            hold(made)
            if made:
                _die_at("claimed")

        claim_segments(hold=hold_and_die, **options)

    def finished(process: Any, settled: Any) -> None:
        note(process, settled)
        if process.held.unrendered() and Segment.objects.filter(status="done").exists():
            _die_at("rendering")

    def rendered(*arguments: Any, **options: Any) -> Any:
        take = store_take(*arguments, **options)
        _die_at("rendered")
        return take

    def stored(takes: Any) -> Any:
        found = add_takes(takes)
        _die_at("stored")
        return found

    vars(local).update(claim_segments=claimed)
    render._note_settled = finished
    vars(segments).update(store_take=rendered, add_takes=stored)


def _die_around_chapters() -> None:
    """encoding: a chapter of a book's file is half encoded. encoded: it has no facts yet."""
    from workers.book_files import chapter_encodes
    from workers.book_files.chapter_encodes import EncodeCache, write_aac

    finish = EncodeCache.finish

    def half_written(path: Path, blocks: Any, *arguments: Any, **options: Any) -> Any:
        def dying() -> Any:
            for block in blocks:
                yield block[: len(block) // 2]
                _die_at("encoding")
                yield block[len(block) // 2 :]

        return write_aac(path, dying(), *arguments, **options)

    def finished(self: EncodeCache, key: str, facts: dict[str, Any]) -> dict[str, Any]:
        _die_at("encoded")
        return finish(self, key, facts)

    vars(chapter_encodes).update(write_aac=half_written)
    EncodeCache.finish = finished  # type: ignore[method-assign]


def _die_around_files() -> None:
    """writing: a half of a file for people is written. written: no row names it."""
    from ttsweb.storage import AtomicFileSystemStorage

    save = AtomicFileSystemStorage._save

    def deadly(self: AtomicFileSystemStorage, name: str, content: Any) -> str:
        if not name.startswith("exports/"):
            return save(self, name, content)
        chunks = content.chunks

        def dying() -> Any:
            for chunk in chunks():
                yield chunk[: len(chunk) // 2]
                _die_at("writing")
                yield chunk[len(chunk) // 2 :]

        content.chunks = dying
        key = save(self, name, content)
        _die_at("written")
        return key

    AtomicFileSystemStorage._save = deadly  # type: ignore[method-assign]


def _note_asked() -> None:
    """Note each rendering that the engine is asked for, and whether its take is stored already."""
    from synth.models import Take
    from workers.rendering import render

    submit = render._submit
    path = Path(os.environ["TTS_DATA_DIR"]) / "asked.txt"

    def noted(process: Any, claim: Any) -> None:
        key = claim.request.content_key
        is_stored = Take.objects.filter(content_key=key).exists()
        with path.open("a") as file:  # one short write: lines of two workers do not mix
            file.write(f"{key} {int(is_stored)}\n")
        submit(process, claim)
        _die_when_done()

    render._submit = noted


FAULTS = {
    "triple": triple,
    "poison": poison,
    "full": full,
    "storing": storing,
    "row": row,
    "moments": moments,
}

if __name__ == "__main__":
    import django
    from django.core.management import execute_from_command_line

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ttsweb.settings")
    django.setup()
    FAULTS[os.environ["TTS_TEST_FAULT"]]()
    execute_from_command_line(sys.argv)
