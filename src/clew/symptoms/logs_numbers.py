"""Numbers as logs write them."""

import re

DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]*)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
NUMBER = rf"[-+]?(?>(?:{DIGITS}(?:[eE][-+]?[0-9]+)?)|(?i:nan|inf(?:inity)?)\b)"
_WHOLE = re.compile(rf"({NUMBER})\s?(%?)")
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]+,[0-9]+(?:[eE][-+]?[0-9]+)?")


def value_of(digits: str, percent: bool = False) -> float:
    """The number that matched text stands for. A percentage is its share: 98.2 % is 0.982 to the last bit."""
    text = digits.replace(",", "")
    if percent and text[-1:] not in "nNfFyY":
        head, _, exponent = text.lower().partition("e")
        # A Python int of any length is fine here, a conversion of one with thousands of digits is not.
        text = f"{head}e{int(exponent or 0) - 2}" if len(exponent) < 20 else text
    return float(text)


def number(text: str, decimal_comma: bool = False) -> float | None:
    """The number that a cell or a quoted value holds, None when it is anything else."""
    text = text.strip()
    if decimal_comma and _DECIMAL_COMMA.fullmatch(text):
        return float(text.replace(",", "."))
    found = _WHOLE.fullmatch(text)
    return value_of(found[1], bool(found[2])) if found else None


def as_float(value: object) -> float | None:
    """A value out of JSON as a number. Truth values are no measurements; text counts when it is a number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if isinstance(value, float):
        return value
    return number(value) if isinstance(value, str) and len(value) < 64 else None
