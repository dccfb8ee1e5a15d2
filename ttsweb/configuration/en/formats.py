"""Write a time with its zone, since the server's is UTC and the reader's seldom is."""

from __future__ import annotations

DATE_FORMAT = "j M Y"
TIME_FORMAT = "H:i"
# Where it is broken at all, it is broken between the day and the time.
DATETIME_FORMAT = "j\u00a0M\u00a0Y, H:i\u00a0T"
SHORT_DATE_FORMAT = "j M Y"
SHORT_DATETIME_FORMAT = DATETIME_FORMAT
