"""Times as people type them."""

from clew.errors import ClewError

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """A time as people type it: 60s, 2m, 0.5h, or a number of seconds."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "s")
    try:
        value = float(number) * UNITS[unit]
    except ValueError:
        value = 0.0
    if not 0 < value < 1e7:
        raise ClewError(f"a budget is a time such as 60s, 2m or 0.5h, not {text!r}.")
    return value
