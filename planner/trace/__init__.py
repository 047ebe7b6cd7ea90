"""One training step of the real model, recorded on the meta device."""
