"""Where models come from, and how they are built on the meta device."""
