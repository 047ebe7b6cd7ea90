"""One thin file per verb; the CLI imports only the chosen one."""
