"""Published step times."""
