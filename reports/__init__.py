"""Renders plans: terminal, markdown, JSON."""
