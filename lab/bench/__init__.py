"""Measure the engine: each module is one benchmark with `run`; `arguments` reads their options."""
