"""Jobs without their HTTP: planned, submitted, found in the queue, tried again, let go."""
