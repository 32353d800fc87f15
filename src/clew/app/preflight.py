"""Before the run: what is likely to go wrong, and what somebody expects."""

import os
from collections.abc import Collection
from typing import NamedTuple

from clew.app.cases import code_digest, open_case
from clew.app.known import known_domain
from clew.case import log, store
from clew.case.weigh import Subject, weigh
from clew.errors import ClewError, did_you_mean
from clew.knowledge.base import load
from clew.knowledge.model import Cause, Test
from clew.records.case import Case

SURPRISES = ("very surprising", "somewhat surprising", "not surprising")


class Danger(NamedTuple):
    """A failure that is likely for a subject, with the cheap check that would show it."""

    cause: Cause
    prior: float
    check: Test


def dangers(domain: str, most: int = 6, listed: Collection[str] = ()) -> list[Danger]:
    """What is most likely to go wrong: what is typical of the domain, filled up by prior; the likelier first, without
    what is listed already."""
    knowledge = load()
    held = weigh(knowledge, (), Subject(known_domain(domain)))
    prior = {share.cause: share.credence for share in held.shares}
    typical = list(knowledge.domains[domain].typical)
    ranked = typical + [share.cause for share in held.shares if share.cause not in typical]
    causes = [
        knowledge.causes[name]
        for name in ranked
        if name in prior and not name.startswith("none.") and name not in listed
    ]
    causes = sorted(causes[:most], key=lambda cause: -prior[cause.id])
    return [Danger(cause, prior[cause.id], knowledge.tests[cause.refute_test]) for cause in causes]


def record(name: str, script: str, domain: str, surprise: str, worries: list[dict[str, str]]) -> Case:
    """Record what somebody expects to go wrong; opens a case when none is named."""
    if surprise not in SURPRISES:
        raise ClewError(f"a failure is one of: {', '.join(SURPRISES)}; not {surprise!r}.")
    knowledge = load()
    for worry in worries:
        cause = worry.get("cause", "")
        if cause and cause not in knowledge.causes:
            raise ClewError(f"there is no cause {cause!r}{did_you_mean(cause, list(knowledge.causes)) or '.'}")
    if surprise != SURPRISES[0] and not worries:
        raise ClewError("name what could go wrong: --worry CAUSE or --worry 'your words: the check'")
    if name:
        case = open_case(name)
    else:
        what = f"preflight of {os.path.basename(script)}" if script else "pre-flight"
        data = {"symptom": what, "domain": known_domain(domain), "setting": "routine"}
        if script:
            data |= {"script": script, "code": code_digest(script)}
        case = store.create(data)
    log.append(case.folder, "preflight", {"surprise": surprise, "worries": worries, "script": script})
    return store.load(case.folder)
