"""Name what users and API keys may do and what limits keys, for models and commands alike."""

READ, VOICES, JOBS, ADMIN, WORKER = "read", "voices", "jobs", "admin", "worker"
SCOPES = {
    READ: "read what the user sees",
    VOICES: "create, change and delete voices",
    JOBS: "create, cancel, retry and delete jobs",
    ADMIN: "see the jobs of all users, if the user is a superuser",
    WORKER: "run a worker over HTTPS and do nothing else, if the user is staff",
}
DEFAULT_SCOPES = (READ, VOICES, JOBS)
LIMITS = {
    "max_queued_chars": "most queued characters",
    "max_unfinished_jobs": "most unfinished jobs",
    "max_requests_per_minute": "most requests per minute",
    "max_stored_bytes": "most stored bytes",
}
OWN_RIGHTS = ("is_active", "is_staff", "is_superuser")  # nobody takes them from oneself
