"""Format log lines with the ids of the job and segment at work; texts never appear in them."""

from __future__ import annotations

import contextvars
import json
import logging

# Set by the workers around a piece of work, such as "job=… segment=…".
log_context: contextvars.ContextVar[str] = contextvars.ContextVar("log_context", default="")


class RouteFilter(logging.Filter):
    """Tell requests by their routes: in an address may stand whatever somebody has put there."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        path = getattr(request, "path", None)
        if path and isinstance(record.args, tuple):
            match = getattr(request, "resolver_match", None)
            route = f"/{match.route}" if match is not None else "an unknown address"
            record.args = tuple(route if one == path else one for one in record.args)
        return True


class LineFormatter(logging.Formatter):
    def __init__(self, form: str = "text") -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(context)s: %(message)s")
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows in text form and is a field in JSON form."""
        context = log_context.get()
        record.context = f" [{context}]" if context else ""
        if self.form == "text":
            return super().format(record)
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if context:
            entry["context"] = context
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)
