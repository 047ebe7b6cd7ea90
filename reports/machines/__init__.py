"""Machines on which a job fits, as text: `text` is the table that a terminal shows."""
