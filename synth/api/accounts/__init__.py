"""API keys, users and groups over REST, and who a request is from."""
