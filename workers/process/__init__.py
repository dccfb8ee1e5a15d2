"""One worker process: started, fed, watched, stopped."""
