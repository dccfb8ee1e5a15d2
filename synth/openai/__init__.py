"""Serve calls as OpenAI's API has them, so that its clients work unchanged."""
