"""Engines, one file each: submit file, client, facts."""
