"""The models that benchmarks run: presets with random weights, and checkpoints."""
