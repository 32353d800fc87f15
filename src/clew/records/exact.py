"""JSON that loses nothing: NaN and the infinities have a form of their own, and equal values give equal bytes.

A reading of NaN is a reading. Standard JSON has no way to say it, so a non-finite number is written as
`{"$float": "nan"}`, `{"$float": "inf"}` or `{"$float": "-inf"}` and comes back as the same number.
"""

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashlib import sha256
else:
    # As `random` does: hashlib loads all of OpenSSL, a twentieth of what `clew case` takes to start.
    try:
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256

TAG = "$float"


def plain(value: Any) -> Any:
    """The value as JSON can hold it: tuples become lists, non-finite numbers are tagged."""
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return {TAG: "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, dict):
        if TAG in value:
            raise ValueError(f"the name {TAG!r} is taken: it marks numbers that are not finite")
        return {_name(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise TypeError(f"a {type(value).__name__} cannot be recorded: {value!r}")


def _name(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"names must be text, not {type(key).__name__}")
    return key


def restore(value: Any) -> Any:
    """The inverse of `plain`, with lists for tuples."""
    if isinstance(value, dict):
        if set(value) == {TAG}:
            if value[TAG] not in ("nan", "inf", "-inf"):
                raise ValueError(f"{value[TAG]!r} is not a number")
            return float(value[TAG])
        return {key: restore(item) for key, item in value.items()}
    if isinstance(value, list):
        return [restore(item) for item in value]
    return value


def dumps(value: Any) -> str:
    """Canonical text: sorted names, no spaces, ASCII only (so that text which is not valid Unicode survives too)."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def pretty(value: Any) -> str:
    """The same content laid out for people and for other programs to read."""
    return json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def loads(text: str) -> Any:
    return restore(json.loads(text, parse_constant=_refuse))


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def digest(value: Any) -> str:
    """The first 16 hex digits of SHA-256 over the canonical text: the same content has the same digest everywhere."""
    return sha256(dumps(value).encode()).hexdigest()[:16]
