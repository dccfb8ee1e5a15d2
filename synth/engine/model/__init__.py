"""The model: slow and fast AR, their caches, sampling, prefill and decode steps."""
