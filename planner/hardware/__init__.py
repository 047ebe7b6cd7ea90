"""GPU facts with their sources, cluster specifications, detection."""
