"""What kind of subject a run was, from what it did: nobody needs to say that it was reinforcement learning."""

from collections.abc import Mapping
from typing import Any

ENVIRONMENT = ("environment steps", "")
DERIVATIVES = ("input derivatives", "")


def domain_seen(series: Mapping[tuple[str, str], Any], said: str = "general") -> str:
    """The domain a run shows: "rl" where an environment took steps beside the training, "pinn" where derivatives by
    the inputs of a network entered its loss. What somebody said stands."""
    if said != "general":
        return said
    if ENVIRONMENT in series:
        return "rl"
    return "pinn" if DERIVATIVES in series else said
