"""Ends a rank whose loss is no finite number, where that was asked for."""

EXIT_CODE = 1


class NotFiniteLoss(SystemExit):
    """The loss of a step is NaN or infinite. Passes through a script's `except Exception`."""

    def __init__(self, message: str) -> None:
        super().__init__(EXIT_CODE)
        self.message = message

    def __str__(self) -> str:
        return self.message


NotFiniteLoss.__module__ = "gpu_plan"
