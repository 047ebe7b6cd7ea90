"""Widgets of the explorer, one per file; each draws a scene and knows nothing else."""
