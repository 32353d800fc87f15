"""What a loop that was watched comes to, once all that was seen is weighed."""

from pathlib import Path

from loops_training import Loop

from clew.app.domain import domain_seen
from clew.case.weigh import Subject, weigh
from clew.knowledge import load
from clew.observe.collect import clues_of, processes
from clew.observe.hooks import watching
from clew.observe.registry import all_watches


def first_finding(folder: Path, loop: Loop) -> tuple[str, list[str]]:
    """The kind of subject that was recognised, and the first cause that was found, if any."""
    with watching(folder, all_watches()[0]) as recorder:
        loop()
        recorder.checkpoint(final=True)
    (part,) = processes(str(folder))
    domain = domain_seen(part.series)
    found = weigh(load(), clues_of(load(), part), Subject(domain, "routine"))
    return domain, [finding.cause for finding in found.findings][:1]
