"""The options of a job: what may be said, and how it is read from a request."""
