"""Turn audio into codes and codes into audio: two halves that are loaded apart."""
