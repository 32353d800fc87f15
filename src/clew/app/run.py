"""Running a script under observation and saying what was seen."""

import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from clew import reading
from clew.app.curves import curve_clues
from clew.app.domain import domain_seen
from clew.app.examine import NONE, Exams, captures, examine, forget
from clew.app.files import data_files
from clew.app.files import to_json as files_json
from clew.app.known import known_domain
from clew.app.progress import CluesSoFar
from clew.app.repeat import repeat
from clew.app.settings import Met, functions_run, settings_places, with_lines
from clew.app.source_clues import early_errors
from clew.app.tables import look_into
from clew.archive import code, runs
from clew.archive.files import write_whole
from clew.archive.model import PAGE, REPORT, RUN, Run, SourceFile
from clew.archive.runs import signal_name
from clew.case.clues import join
from clew.case.verdict import Verdict, without
from clew.case.weigh import Finding, names_line
from clew.errors import ClewError
from clew.home import private
from clew.knowledge.base import load
from clew.observe.collect import Crash, Process, clues_of, processes, rank_clues, read_crash, trainings
from clew.observe.launch import Ended, Told, command_for, launch
from clew.observe.progress import sweep
from clew.records.case import Case, HeldClue
from clew.records.clue import Clue
from clew.records.exact import pretty
from clew.records.masked import masked_text, masked_words
from clew.records.place import Place, near, told
from clew.report.run_page import DataFile, RunFacts
from clew.report.view import CaseView, view
from clew.report.view import to_json as case_json

NOT_DRAWN = (
    "row digest", "rows per epoch", "loader trained", "fingerprint", "classes", "loss function", "epoch",
    "environment steps", "input derivatives",
)  # fmt: skip
"""Series whose names begin so serve to compare processes or to read the curves, and mean nothing to the eye."""
MOST_NEXT = 5
MOST_FORETOLD = 5
LEADING = 8
SHORTEST, BUDGET = 10.0, 60.0


class Done(NamedTuple):
    """A run that has ended, and what clew makes of it."""

    run: Run
    command: list[str]
    ended: Ended
    parts: list[Process]
    seen: CaseView
    said: list[str]  # what could not be kept
    files: tuple[DataFile, ...] = ()
    exams: Exams = NONE
    crash: Crash | None = None
    kept: bool = True  # False where there was no training


class Options(NamedTuple):
    """How to run it. `progress`: standard error is a terminal, and somebody may be looking. `twice`: run it again and
    compare; `say` is told before. `exams` are made on the captured step for at most `budget` seconds; 0: as long
    as the run took, within SHORTEST and BUDGET."""

    steps: int = 0
    sample: str = "auto"
    domain: str = "general"
    progress: bool = False
    twice: bool = False
    say: Callable[[str], None] | None = None
    exams: bool = True
    budget: float = 0.0
    keep_capture: bool = False
    instruments: bool = True


class Watched(NamedTuple):
    """A command that has ended, and is to be judged. `held` is None where no folder could be made for the run."""

    held: Run | None
    command: list[str]
    script: str
    ended: Ended
    domain: str
    options: Options


def watch(words: list[str], module: str, launcher: bool, options: Options, told: Told) -> Watched:
    """Run the command to its end, under observation wherever a folder can be written."""
    domain = known_domain(options.domain)
    command = command_for(words, module, launcher)
    script = module or words[0]
    if options.say is not None:
        _foretell(early_errors(words, module), options.say)
    held = _begin(command, script)
    tick = CluesSoFar(held.folder) if options.progress and held is not None else None
    capture = options.exams or options.keep_capture
    folder = held.folder if held is not None else ""
    try:
        ended = launch(command, folder, options.steps, options.sample, tick, capture, options.instruments, told)
    except ClewError:
        shutil.rmtree(folder, ignore_errors=True)  # nothing ran
        raise
    return Watched(held, command, script, ended, domain, options)


def _begin(command: list[str], script: str) -> Run | None:
    try:
        return runs.begin(command, ".", script)
    except (ClewError, OSError) as error:
        why = str(error)
    try:
        held = runs.begin(command, ".", script, home=tempfile.mkdtemp(prefix="clew-"))
    except (ClewError, OSError):
        warn(f"{why} The script runs without observation.")
        return None
    warn(f"{why} This run is kept in {held.folder} instead.")
    return held


def warn(sentence: str) -> None:
    """What clew itself cannot do, said whether or not a report is wanted."""
    print(f"clew: {sentence}", file=sys.stderr, flush=True)


def judge(held: Run, watched: Watched, told: Told) -> Done:
    """Weigh what was seen, and keep all of it. A disk without space costs what does not fit on it, and is said."""
    _, command, script, ended, domain, options = watched
    if not os.path.isfile(held.path(RUN)):
        shutil.rmtree(held.folder, ignore_errors=True)
        raise ClewError(f"the folder of the run was removed while it ran: {held.folder}.")
    sweep(held.folder)
    parts = processes(held.folder)
    crash = read_crash(held.folder)
    if not parts and options.instruments and not _own_faults(held) and not troubles(held.folder):
        done = Done(held, command, ended, parts, seen_in(parts, held, script, domain, []), [], crash=crash)
        shutil.rmtree(held.folder, ignore_errors=True)
        return done._replace(seen=_sobered(done, True), kept=False)
    said: list[str] = []
    if parts:
        domain = domain_seen(parts[0].series, domain)
    kept: tuple[SourceFile, ...] = ()
    with spared(said):
        kept = code.snapshot(held, sources(held))
    files = data_files(held)
    more: list[Clue] = []
    with spared(said):
        more += read_source(held, kept, script)
    if not told.asked:
        with spared(said):
            more += look_into(held, files)
    if options.twice and not told.asked:
        if options.say is not None:
            options.say("a second time, to compare the losses")
        more.append(repeat(load(), held, command, script, ended, parts, options.sample))
    seen = seen_in(parts, held, script, domain, more)
    done = Done(held, command, ended, parts, seen, said, files, crash=crash)
    if options.exams and steps_of(parts) and not told.asked and not witnessed(seen) and captures(held):
        clues = [item.clue for item in seen.case.clues]
        with spared(said):
            budget = options.budget or min(max(ended.seconds, SHORTEST), BUDGET)
            found = examine(held, clues, budget, domain, options.say, options.progress, told)
            more = join(load(), [[*more], [*found.clues]])
            done = done._replace(exams=found, seen=seen_in(parts, held, script, domain, more))
    judged = without(done.seen.verdict, done.exams.left_out, held.id)
    if not options.keep_capture and judged == done.seen.verdict:
        forget(held)
    done = done._replace(seen=done.seen._replace(verdict=judged))
    done = done._replace(seen=_sobered(done, options.instruments))
    with spared(said):
        keep(done)
    return done


@contextmanager
def spared(said: list[str]) -> Iterator[None]:
    """A part of the report that there may be no space for."""
    try:
        yield
    except ClewError as error:
        said.append(str(error))
    except OSError as error:
        said.append(f"a part of the report is missing: {error}")


def _foretell(errors: list[str], say: Callable[[str], None]) -> None:
    """Errors that the run may end with, before it starts."""
    for error in errors[:MOST_FORETOLD]:
        say(error)
    if len(errors) > MOST_FORETOLD:
        say(f"and {len(errors) - MOST_FORETOLD} more; clew preflight SCRIPT lists them")


def read_source(held: Run, kept: Iterable[SourceFile], script: str) -> list[Clue]:
    """Clues from the source of the run, of files that still say what they said when it loaded them. A run that was
    killed may not have said which they are; then there is the script."""
    from clew.app.source_clues import source_clues

    files = list(kept)
    paths = [item.path for item in files if not item.changed]
    if not files and os.path.isfile(script):
        paths = [script]
    clues, trouble = source_clues(load(), paths, functions_run(held))
    if trouble:
        with (
            suppress(OSError),
            open(held.path("trouble-source"), "w", encoding="utf-8", errors="backslashreplace", opener=private) as file,
        ):
            file.write(trouble)
    return clues


def witnessed(seen: CaseView) -> bool:
    """Whether a mechanism was seen at work. What only stands in the source leaves the exams their say."""
    return any(seen.counted[index].clue.source != "lint" for item in seen.weighing.findings for index in item.clues)


def _sobered(done: Done, instruments: bool) -> CaseView:
    """A run that made no step, or that an error ended, has not shown that it is healthy."""
    if not instruments:
        says = "The script ran without instruments: its code, settings and output were kept, and nothing was measured."
        return done.seen._replace(verdict=Verdict("undecided", says))
    for name in _own_faults(done.run):
        with open(done.run.path(name), encoding="utf-8") as file:
            says = f"{file.read()}, so the error may be clew's. Without instruments: {_bare(done.command)}"
        return done.seen._replace(verdict=Verdict("undecided", says))
    steps, ended, word = steps_of(done.parts), done.ended, done.seen.verdict.word
    cut_off = ended.signal and ended.signal != signal.SIGINT  # whoever types Ctrl-C has seen enough
    failed = not steps or (ended.status and not ended.signal)
    if word == "fault" or not (cut_off or (word in ("healthy", "undecided") and failed)):
        return done.seen
    if not steps:
        says = "No optimiser step was seen, so the training cannot be assessed."
    else:
        says = f"{how_ended(done)} after {steps} steps, too early to call its training healthy."
    return done.seen._replace(verdict=Verdict("undecided", says))


def _bare(command: list[str]) -> str:
    words = command[1:] if command[0] == sys.executable else ["--", *command]
    return shlex.join(["clew", "run", "--no-instruments", *words])


def how_ended(done: Done) -> str:
    if done.ended.signal:
        return f"{signal_name(done.ended.signal)} ended the script"
    if done.crash is not None:
        return f"{done.crash.kind} ended the script"
    return f"The script ended with status {done.ended.status}"


def _own_faults(held: Run) -> list[str]:
    """Of the processes that ended by an error in which clew's code took part."""
    return (
        sorted(name for name in os.listdir(held.folder) if name.startswith("own-"))
        if os.path.isdir(held.folder)
        else []
    )


def keep(done: Done) -> None:
    """Write the report into the archive, and last of all how the run ended."""
    with spared(done.said):
        write_whole(done.run.path(REPORT), pretty(to_json(done)).encode("utf-8", "backslashreplace"), sync=False)
    with spared(done.said):
        write_whole(done.run.path(PAGE), page(done).encode("utf-8", "backslashreplace"), sync=False)
    status = None if done.ended.signal else done.ended.status
    runs.finish(
        done.run,
        status,
        signal=done.ended.signal,
        seconds=done.ended.seconds,
        steps=steps_of(done.parts),
        verdict=done.seen.verdict.word,
    )


def sources(held: Run) -> list[str]:
    """The user's source files that were really imported, by any process of the run."""
    found: dict[str, None] = {}
    for name in sorted(os.listdir(held.folder)):
        if name.startswith("sources-"):
            with open(held.path(name), encoding="utf-8", errors="surrogateescape") as file:
                found.update(dict.fromkeys(line.rstrip("\n") for line in file))
    return [path for path in found if os.path.isfile(path)]


def seen_in(parts: list[Process], held: Run, script: str, domain: str, more: list[Clue]) -> CaseView:
    """What the trace of a run shows, and what is known besides, weighed."""
    knowledge = load()
    observed = join(knowledge, [rank_clues(knowledge, parts), *(clues_of(knowledge, part) for part in parts)])
    curves = curve_clues(knowledge, parts[0], held) if parts and parts[0].steps else []
    named = {clue.test for clue in observed}
    joined = join(knowledge, [[*observed, *(clue for clue in curves if clue.test not in named)], more])
    clues = with_lines(held, joined)
    case = Case(
        id=held.id,
        folder=held.folder,
        symptom=f"clew run {script}",
        domain=domain,
        setting="routine",
        script=script,
        code="",
        opened_at="",
        entries=(),
        clues=tuple(HeldClue(index + 1, clue, "", "") for index, clue in enumerate(clues)),
        notes=(),
        own=(),
        preflights=(),
        closing=None,
    )
    seen = view(knowledge, case, most=20, by_hand=False)
    # What watching and reading the curves can show has been looked for in this run.
    further = [choice for choice in seen.choices if knowledge.tests[choice.test].by not in ("observe", "log", "lint")]
    return placed(seen._replace(choices=tuple(further[:MOST_NEXT])), held)


def placed(seen: CaseView, held: Run) -> CaseView:
    """With the lines where settings were written, for causes that are about a setting."""
    places = settings_places(held, sources(held), [item.path for item in data_files(held)], met_by(seen))
    findings = tuple(
        item._replace(where=told(places.get(item.cause, ()), item.where)) for item in seen.weighing.findings
    )
    return seen._replace(weighing=seen.weighing._replace(findings=_by_line(seen, findings)), places=places)


def _by_line(seen: CaseView, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """On a line at which the run shows a fault, what lint alone says is that fault by another name."""
    read = [item for item in findings if all(seen.counted[index].clue.source == "lint" for index in item.clues)]
    shown = {item.where[0][:2]: item for item in reversed(findings) if item.where and item not in read}
    merged = list(findings)
    for item in read:
        held = shown.get(item.where[0][:2]) if item.where else None
        if held is not None:
            merged.remove(item)
            merged = [
                one._replace(clues=(*one.clues, *item.clues)) if one.cause == held.cause else one for one in merged
            ]
    return tuple(merged)


def met_by(seen: CaseView) -> dict[str, Met]:
    """By cause: the clues that speak for it, for the causes that lead."""

    def met(cause: str, clues: Iterable[int], where: tuple[Place, ...], found: bool = False) -> Met:
        held = [(seen.counted[index].clue, seen.weighing.clues[index].outcome) for index in clues]
        numbers = (value for clue, _ in held for _, value in clue.measured)
        return Met(
            where,
            frozenset(float(value) for value in numbers if isinstance(value, int | float)),
            frozenset(f"{clue.test}={outcome}" for clue, outcome in held),
            found,
            read.get(f"source_{cause.replace('.', '_')}", ()),
        )

    read = {
        held.clue.test: held.clue.where[:1]
        for held, weighed in zip(seen.counted, seen.weighing.clues, strict=True)
        if names_line(held.clue, weighed.outcome)
    }
    found = {}
    for share in seen.weighing.shares[:LEADING]:
        support = [pull.clue for pull in seen.weighing.pulls(share.cause) if pull.bits > 0]
        where = tuple(place for index in support for place in seen.counted[index].clue.where)
        found[share.cause] = met(share.cause, support, where)
    return found | {item.cause: met(item.cause, item.clues, item.where, True) for item in seen.weighing.findings}


def steps_of(parts: list[Process]) -> int:
    return max((part.steps for part in parts), default=0)


def facts(done: Done) -> RunFacts:
    """What the report says about the run itself."""
    return RunFacts(
        done.seen.case.script,
        steps_of(done.parts),
        done.ended.seconds,
        done.ended.status,
        len(done.parts),
        near(done.run.folder),
        (*troubles(done.run.folder), *(text for part in done.parts for text in part.missing), *done.said),
        done.files,
        done.exams.notes,
        _exams_line(done.exams),
        *(_crash_facts(done.crash) if done.crash else ("", None, "")),
        tuple(part.steps for part in trainings(done.parts)),
        os.path.isfile(done.run.path(PAGE)),
    )


def _crash_json(crash: Crash) -> dict[str, Any]:
    return {**crash._asdict(), "place": crash.place.to_json() if crash.place else None}


def _crash_facts(crash: Crash) -> tuple[str, Place | None, str]:
    says = (f"{crash.kind}: {crash.says}" if crash.says else crash.kind).splitlines()[0]
    rank = f" (rank {crash.rank})" if crash.rank else ""
    held = crash.memory
    memory = [f"{held[name]:.2f} GiB {name}" for name in ("allocated", "reserved") if name in held]
    memory += [f"{held['resident']:.2f} GiB in main memory"] if "resident" in held else []
    told = f"Raised {crash.phase or 'in the script, outside of model, backward and optimiser'}"
    told += f", in process {crash.pid}{rank}" if rank or memory else ""
    return says, crash.place, f"{told}{'; ' if memory else ''}{', '.join(memory)}."


def _exams_line(held: Exams) -> str:
    return (
        f"{held.made} exam{'s' * (held.made != 1)} in {held.seconds:.0f} s{held.ended and '; '}{held.ended}."
        if held.made
        else ""
    )


def troubles(folder: str) -> tuple[str, ...]:
    """What clew itself could not do, in its own words, each once."""
    lines: dict[str, None] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.startswith("trouble-"):
            held = reading.text(os.path.join(folder, name)).splitlines()
            lines.update(dict.fromkeys(masked_text(line.strip()) for line in held if line.strip()))
    return tuple(lines)


def page(done: Done) -> str:
    """The report as one page."""
    from clew.report.run_html import run_html

    held = done.parts[0].series if done.parts else {}
    series = {key: item for key, item in held.items() if not key[0].startswith(NOT_DRAWN)}
    return run_html(done.seen, facts(done), series, source)


def source(name: str) -> list[str] | None:
    """The lines of a source file, None when it cannot be read."""
    try:
        return reading.text(name).splitlines()
    except OSError:
        return None


def to_json(done: Done) -> dict[str, Any]:
    """As CONTRACT has it."""
    table = case_json(done.seen)
    del table["case"]
    table["command"] = "run"
    table["run"] = {
        "id": done.run.id,
        "script": done.seen.case.script,
        "argv": masked_words(done.command),
        "steps": steps_of(done.parts),
        "seconds": done.ended.seconds,
        "exit": done.ended.status,
        "files": files_json(done.files),
        "trainings": [{"pid": part.pid, "steps": part.steps} for part in trainings(done.parts)],
        "crash": _crash_json(done.crash) if done.crash else None,
    }
    table["exams"] = {
        "made": done.exams.made,
        "seconds": done.exams.seconds,
        "ended": done.exams.ended,
        "notes": list(done.exams.notes),
        "skipped": [{"exam": name, "why": why} for name, why in done.exams.skipped],
    }
    return table
