"""Capture: a training script runs to its first optimizer step on the meta device, and what it did is the trace.

`source` and `provider` stand in the planning process and import no torch; `child` is the process in which the user's
own code runs, behind a sandbox, with the answers of the planned devices in place of a GPU's.
"""
