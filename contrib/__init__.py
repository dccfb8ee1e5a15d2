"""Hold tools beside the service, none of which it needs."""
