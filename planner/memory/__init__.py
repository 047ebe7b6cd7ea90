"""A rank's memory over time, and the terms outside the allocator."""
