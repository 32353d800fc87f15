"""What looks like a key, a token or a password is not shown: reports, pages, tables and JSON are passed around.

A name that means nothing else is enough (`--hf-token`, `db.password`). Under names that training uses too (`token`,
`key`) the value must look random. Tokens of known services are known wherever they stand.
"""

import re
from collections.abc import Iterable
from typing import Any

MASK = "(masked)"
_SURE = (
    r"pass(?:word|wd|phrase)|pwd|secrets?|credentials?|authorization|"
    r"(?:api|access|private|secret|signing|encryption|account|wandb|openai|neptune|comet|azure|aws)[-_.]?key(?:[-_]?id)?|"
    r"(?:api|access|auth|bearer|refresh|session|hf|hub|huggingface|wandb|github|gitlab|slack|bot)[-_.]?token"
)
_EITHER = r"token|key|auth|bearer"
_NAMED = re.compile(rf"(?:^|[^a-z])(?:(?P<sure>{_SURE})|{_EITHER})$", re.IGNORECASE)
_RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[A-Za-z0-9_\-+/=.]{16,}")
_SHORT = re.compile(r"(?=.*\d)(?=.*[A-Z])[A-Za-z0-9_\-+/=]{8,}")
"""What follows `token` may be shorter: few other tokens mix capitals and digits."""
_KNOWN = re.compile(
    r"\b(?:hf_|sk-|sk_live_|gh[opsur]_|github_pat_|glpat-|xox[abprs]-|pypi-|AKIA|ASIA|AIza|ya29\.|eyJ[\w-]{1,200}\.eyJ)[\w.-]{12,}"
    r"|(?<=://)[^\s/:@]{1,200}:[^\s/@]{1,200}(?=@)|(?<=[Bb]earer )[\w.~+/=-]{8,}"
)
_VALUE = r"""[^\s"',;)}\]]"""
_GIVEN = re.compile(
    rf"""(?<![A-Za-z0-9_.])(?P<name>[A-Za-z][\w.-]{{0,80}})["']?\s{{0,9}}[:=]\s{{0,9}}["']?(?=(?P<value>{_VALUE}{{1,500}}))"""
)
_REST = re.compile(f"{_VALUE}*")


def secret(name: str, value: object) -> bool:
    if value is None or isinstance(value, bool | float) or value == "":
        return False
    # `hubToken` is `hub_token`
    found = _NAMED.search(re.sub(r"([a-z])([A-Z])", r"\1_\2", name.strip("-_ ")))
    if found is None or found["sure"]:
        return found is not None
    short = found.group().lower().endswith("token") and _SHORT.fullmatch(str(value))
    return bool(short or _RANDOM.fullmatch(str(value)))


def masked(name: str, value: Any) -> Any:
    """The value of a variable, argument or setting as it may be shown."""
    if secret(name, value):
        return MASK
    return masked_text(value) if isinstance(value, str) else value


def masked_text(text: str) -> str:
    """Text with what is secret in it masked: `name=value`, `name: value`, tokens of known services."""
    held, at = "", 0
    for found in _GIVEN.finditer(text):
        if found.start() >= at and secret(found["name"], found["value"]):
            held += text[at : found.end()] + MASK
            rest = _REST.match(text, found.end())
            at = rest.end() if rest else found.end()
    return _KNOWN.sub(MASK, held + text[at:])


def masked_words(words: Iterable[str]) -> list[str]:
    """A command line: `--name value` too."""
    found: list[str] = []
    name = ""
    for word in words:
        found.append(MASK if name and not word.startswith("-") and secret(name, word) else masked_text(word))
        name = word if word.startswith("-") and "=" not in word else ""
    return found
