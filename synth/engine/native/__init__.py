"""Compute whole frames on a CPU with code compiled for its processor, where there is a compiler."""
