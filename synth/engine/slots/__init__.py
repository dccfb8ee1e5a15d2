"""The loop that serves requests: slots are filled, stepped and emptied into the codec."""
