"""What `./tts torture` does: look at its arguments, torture or soak, and show what was found."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from lab.bench.report import Report, check_plot
from lab.servers import why_no_postgres, why_no_redis
from lab.torture.faults import FAULTS, NAMES, Fault
from lab.torture.installation import Wanted, installed
from synth.engine.errors import InvalidSpecError
from ttsweb.commands.base import (
    BaseCommand,
    CommandError,
    UsageError,
    reporting_errors,
    signals_interrupt,
)
from ttsweb.commands.terminal import Bars
from ttsweb.private_files import users_umask

if TYPE_CHECKING:
    from lab.torture.run import Outcome

DEFECTS = ("lost-job", "endless-job", "wrong-file", "damaged-file", "counted-twice")
DEFAULT_RESTARTS = 16
SOAK_RENDER_SECONDS, SOAK_SLOTS = 0.005, 8
COLUMNS = (
    "fault", "seconds", "accepted", "lost", "twice", "corrupt", "renders", "wasted_percent",
    "longest_stall_seconds", "recovery_seconds", "not_run",
)  # fmt: skip
SOAK_COLUMNS = ("process", "memory_mib", "memory_growth_percent", "files", "threads")


class RunBar(Bars):
    """One bar over all faults, with what is being done beside it."""

    is_counted = False

    def __init__(self, stream: TextIO, total: float) -> None:
        super().__init__(stream, "doing")
        self._task = self._progress.add_task("torture", total=total, doing="")
        self._is_first = True

    def say(self, text: str) -> None:
        self._progress.update(self._task, advance=0 if self._is_first else 1, doing=text)
        self._is_first = False


def torture(command: BaseCommand, options: dict[str, Any]) -> None:
    """Do what the options say.

    Raises:
        CommandError: something was lost, twice or corrupt, or nothing could be tried.
    """
    faults = _checked(options)
    wanted = Wanted(
        redis=options["redis"],
        postgres=options["postgres"],
        s3=options["s3"],
        own_disk=os.geteuid() == 0 and not options["soak"],
        minutes=options["minutes"],
    )
    with reporting_errors(command.stdout, as_json=options["json"]):
        try:
            with signals_interrupt():
                if options["soak"]:
                    report, is_good = _soak(wanted, options)
                else:
                    report, is_good = _torture(wanted, options, faults)
        except KeyboardInterrupt:
            raise CommandError("Stopped; what was started is gone.", returncode=130) from None
    command.stdout.write(report.as_json() if options["json"] else report.as_table())
    if not is_good:
        raise CommandError(f"Not all is well: {_first_problem(report)}")


def _checked(options: Mapping[str, Any]) -> list[Fault]:
    """Return the faults that the options ask for.

    Raises:
        UsageError: the options do not go together, or this machine lacks what they need.
    """
    servers = ("redis", why_no_redis), ("postgres", why_no_postgres), ("s3", why_no_s3)
    for name, why in servers:
        if options[name] and (reason := why()):
            raise UsageError(f"--{name}: {reason}.")
    if options["restarts"] is not None and not options["soak"]:
        raise UsageError("--restarts goes with --soak; leave it out.")
    if options["soak"]:
        for name in ("faults", "plant", "plot"):
            if options[name] is not None:
                raise UsageError(f"--{name} does not go with --soak; leave one of them out.")
    if options["plot"] is not None:
        try:
            check_plot(options["plot"], suffix=".svg")
        except InvalidSpecError as error:
            raise UsageError(str(error)) from error
    _listed(options, "plant", DEFECTS)
    names = _listed(options, "faults", NAMES)
    return [fault for fault in FAULTS if not names or fault.name in names]


def _listed(options: Mapping[str, Any], option: str, known: Sequence[str]) -> list[str]:
    text = options[option]
    names = [] if text is None else [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--{option}: {unknown[0]!r} is none of {', '.join(known)}.")
    return names


def _torture(
    wanted: Wanted, options: Mapping[str, Any], faults: Sequence[Fault]
) -> tuple[Report, bool]:
    with RunBar(sys.stderr, len(faults) + 2) as bar, installed(wanted) as made:
        from lab.torture.run import Torture, working  # its rows are there from here on

        with working(made, bar.say) as load:
            defects = _listed(options, "plant", DEFECTS)
            tortured = Torture(made, load, bar.say, defects=defects)
            outcome = tortured.run(faults, 60 * wanted.minutes)
    if options["plot"] is not None:
        draw(outcome, options["plot"])
    facts = _facts(wanted) | {"minutes": wanted.minutes, **outcome.facts}
    return Report("torture", facts, outcome.rows, COLUMNS), outcome.is_good


def _soak(wanted: Wanted, options: Mapping[str, Any]) -> tuple[Report, bool]:
    restarts = DEFAULT_RESTARTS if options["restarts"] is None else options["restarts"]
    wanted = replace(wanted, render_seconds=SOAK_RENDER_SECONDS, slots=SOAK_SLOTS)
    with RunBar(sys.stderr, restarts + 3) as bar, installed(wanted) as made:
        from lab.torture.soak import soak

        facts, rows, is_good = soak(made, options["soak"], restarts, bar.say)
    return Report("soak", _facts(wanted) | facts, rows, SOAK_COLUMNS), is_good


def _facts(wanted: Wanted) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "database": "postgresql" if wanted.postgres else "sqlite",
        "broker": "redis" if wanted.redis else "files",
        "storage": "s3" if wanted.s3 else "folder",
        "engine": "stand-in",
    }


def why_no_s3() -> str | None:
    missing = [name for name in ("boto3", "moto") if importlib.util.find_spec(name) is None]
    return (
        f"{' and '.join(missing)} are not installed; ./tts test installs them" if missing else None
    )


def _first_problem(report: Report) -> str:
    problems = report.facts.get("problems") or []
    first = problems[0] if problems else "see the figures"
    return first if isinstance(first, str) else f"{first['fault']}: {first['problem']}."


def draw(outcome: Outcome, path: Path) -> None:
    """Draw how many jobs had ended by each moment, with a band for each fault."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.fonttype"] = "none"  # words stay words
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.step(
        [0.0, *outcome.finished], range(len(outcome.finished) + 1), where="post", color="black"
    )
    top = 1.02 * max(len(outcome.finished), 1)
    for number, window in enumerate(one for one in outcome.windows if not one.why_not):
        axes.axvspan(window.begin, window.fault_end, alpha=0.3, color=f"C{number % 10}", lw=0)
        axes.text(window.begin, top, window.fault, rotation=40, ha="left", va="bottom", size=8)
    axes.set_xlabel("seconds")
    axes.set_ylabel("jobs that have ended")
    axes.set_ylim(0, top)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    with users_umask():
        figure.savefig(path, metadata={"Date": None})
