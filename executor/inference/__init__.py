"""Loads a model where its plan puts it, and runs prompts through it."""
