"""What cannot be told without recording it."""


class NotLinearError(Exception):
    """Sizes between the recorded micro batches cannot be told; each is recorded by itself."""
