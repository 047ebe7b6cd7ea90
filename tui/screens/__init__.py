"""Screens of the explorer, one per file."""
