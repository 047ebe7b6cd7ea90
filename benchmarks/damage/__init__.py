"""What goes wrong: faults in runs, damaged checkpoints, hostile inputs, scripts that try to get out."""
