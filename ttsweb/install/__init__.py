"""Steps of the installation that `./tts` runs by their paths: no package is there yet."""
