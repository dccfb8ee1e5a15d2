"""Benchmarks of the whole service: they start its real processes on a data folder of their own."""
