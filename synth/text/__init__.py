"""Turn a text into pieces that can be spoken: pure functions, no Django, no torch."""
