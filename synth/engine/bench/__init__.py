"""Measure the engine: each module is one benchmark with `add_arguments` and `run`."""
