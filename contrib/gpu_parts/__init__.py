"""Hold the parts of `contrib/gpu_check.py`: what is checked and measured, step by step."""
