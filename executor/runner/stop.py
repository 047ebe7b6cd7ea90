"""What ends a script by the plan's own decision, in one line and with an exit code that says so."""

from typing import ClassVar


class Stop(SystemExit):
    """Ends the rank; as a SystemExit it passes through a script's `except Exception`.

    Records and logs call every kind `gpu_plan.NAME`, wherever its module lies.
    """

    exit_code: ClassVar[int]

    def __init_subclass__(cls) -> None:
        cls.__module__ = "gpu_plan"

    def __init__(self, message: str) -> None:
        super().__init__(self.exit_code)
        self.message = message

    def __str__(self) -> str:
        return self.message
