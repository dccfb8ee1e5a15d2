"""Name what an API key may do and what limits it, for models and the command line alike."""

SCOPES = {
    "read": "read what the user sees",
    "voices": "create, change and delete voices",
    "jobs": "create, cancel, retry and delete jobs",
    "admin": "see the jobs of all users, if the user is a superuser",
}
DEFAULT_SCOPES = ("read", "voices", "jobs")
LIMITS = {
    "max_queued_chars": "most queued characters",
    "max_unfinished_jobs": "most unfinished jobs",
    "max_requests_per_minute": "most requests per minute",
    "max_stored_bytes": "most stored bytes",
}
