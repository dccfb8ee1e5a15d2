"""Measure what a checkpoint's speech is worth, against clean speech of the same synthesiser."""
