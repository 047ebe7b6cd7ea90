"""The terminal explorer: `plan explore`."""
