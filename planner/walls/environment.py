"""What code behind walls is told of the user's surroundings: no secrets, and no way to others. Pure."""

import re
from collections.abc import Mapping

HIDDEN = "hidden-while-planning"
_SECRET = re.compile(
    r"(^|_)(TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|API_?KEY|ACCESS_?KEY(_ID)?|PRIVATE_?KEY|CREDENTIALS?|AUTH)(_|$)",
    re.IGNORECASE,
)
_WAYS = (
    "DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "DOCKER_HOST", "GPG_AGENT_INFO", "KRB5CCNAME", "SSH_AGENT_PID",
    "SSH_AUTH_SOCK", "SSH_CONNECTION", "SSH_TTY", "TMUX", "WAYLAND_DISPLAY", "XAUTHORITY",
)  # fmt: skip


def without_secrets(given: Mapping[str, str]) -> dict[str, str]:
    """`given` with what names itself a secret replaced by a word, and without the addresses of other programs.

    A script that asks whether there is a token finds one.
    """
    return {name: HIDDEN if _SECRET.search(name) else value for name, value in given.items() if name not in _WAYS}
