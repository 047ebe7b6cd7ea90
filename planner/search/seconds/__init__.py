"""What the seconds of a step say of its memory: `paces`, how far a host can be ahead of its device. No torch."""
