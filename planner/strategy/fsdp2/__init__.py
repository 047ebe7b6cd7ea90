"""FSDP2 and HSDP: what is sharded, what a pass gathers and frees, what is sent, and what stays on the host."""
