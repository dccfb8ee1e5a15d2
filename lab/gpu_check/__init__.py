"""Check and measure the engine on a GPU, step by step."""
