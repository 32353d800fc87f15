"""What an object that only carries values holds: batches are also given as namespaces, data classes and small classes
of the user's own."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from clew.observe.places import is_users

_users: dict[type, bool] = {}


def fields_of(value: Any) -> dict[str, Any]:
    """The attributes by name. Nothing of what can be called, such as a network, nor of what a library made: its objects
    hold more than they carry."""
    kind = type(value)
    named = getattr(kind, "__dataclass_fields__", None)
    if named is not None:
        return {name: getattr(value, name, None) for name in named}
    held = getattr(value, "__dict__", None)
    if type(held) is not dict or not held or callable(value):
        return {}
    return held if isinstance(value, SimpleNamespace) or _of_the_user(kind) else {}


def _of_the_user(kind: type) -> bool:
    known = _users.get(kind)
    if known is None:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        known = _users[kind] = file is not None and is_users(file)
    return known
