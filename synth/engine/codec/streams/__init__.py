"""Decode codes while they come: chunks with the state between them."""
