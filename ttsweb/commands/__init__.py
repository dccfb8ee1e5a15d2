"""What the commands of `./tts` share, and what those that talk to a server do."""
