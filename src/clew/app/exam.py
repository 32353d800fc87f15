"""Experiments on a subject: one that a module gives, the step that was kept of a run, or one made in Python."""

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.app.known import known_domain
from clew.app.times import seconds_of
from clew.case.verdict import without
from clew.errors import ClewError, did_you_mean
from clew.knowledge.base import load
from clew.records.case import Case, HeldClue
from clew.records.clue import Clue
from clew.records.place import Place, near
from clew.report.exam_page import ExamFacts, PlanFacts, PlanLine, exam_html, exam_page
from clew.report.text import Page
from clew.report.view import CaseView, causes_json, view
from clew.report.view import to_json as case_json

if TYPE_CHECKING:
    from clew.exams.plan import Examined, Plan, Progress
    from clew.exams.subject import Subject

BUDGET = 60.0
MOST_NEXT = 5


class Request(NamedTuple):
    """What to examine and how. `only` names exams; `thorough` makes every exam that the budget allows."""

    budget: float = BUDGET
    only: tuple[str, ...] = ()
    domain: str = "general"
    thorough: bool = False
    keep: str = ""


class Opened(NamedTuple):
    """A subject at hand, with what is known of it: `clues` from its source, and from watching the run it was
    captured in."""

    name: str
    subject: "Subject"
    clues: tuple[Clue, ...] = ()
    run: str = ""
    folder: str = ""


class Done(NamedTuple):
    """Exams that were made, and what clew makes of them."""

    opened: Opened
    request: Request
    examined: "Examined"
    seen: CaseView


# --- what to examine


def open_target(target: str) -> Opened:
    """MODULE:SUBJECT, or a run that was kept with its capture."""
    if not target:
        raise ClewError("say what to examine: clew exam MODULE:SUBJECT, or clew exam RUN for a run that was kept.")
    _need_torch()
    return _given(target) if ":" in target else _kept(target)


def _need_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise ClewError("exams need PyTorch, which is not installed here; pip install 'clew[torch]'.")


def _kept(name: str) -> Opened:
    from clew.archive import runs

    try:
        run = runs.find(name)
    except ClewError as error:
        module = name.removesuffix(".py").replace(os.sep, ".").strip(".")
        if name.endswith(".py") or os.path.isfile(module.replace(".", os.sep) + ".py"):
            raise ClewError(
                f"{name} names a file and not what to examine in it; write MODULE:SUBJECT, such as {module}:subject."
            ) from None
        raise ClewError(f"{error} A subject in a module is named MODULE:SUBJECT.") from None
    from clew.exams.captured import captured

    try:
        subject = captured(run.folder)
    except ClewError:
        runs.ended(run)
        raise
    except Exception as error:  # replaying builds modules of the user's: they may raise anything
        raise ClewError(f"the step that was kept of {run.id} cannot be replayed: {_short(error)}.") from error
    return Opened(run.id, subject, _observed(run.path("report.json")), run.id, run.folder)


def _observed(path: str) -> tuple[Clue, ...]:
    """What watching the run showed; nothing when its report cannot be read."""
    from clew.archive import files

    try:
        rows = files.read_table(path)["clues"]
        clues = [Clue.from_json(row) for row in rows]
    except (ClewError, AttributeError, KeyError, TypeError, OverflowError, ValueError):
        return ()
    tests = load().tests
    return tuple(clue for clue in clues if clue.test in tests)


def _given(target: str) -> Opened:
    module_name, _, name = target.partition(":")
    if module_name.endswith(".py") or os.sep in module_name:
        module = module_name.removesuffix(".py").replace(os.sep, ".").strip(".")
        raise ClewError(f"{module_name} is a file; name the module as import does: clew exam {module}:{name}.")
    if not module_name or not name:
        raise ClewError(f"{target!r} is not of the form MODULE:SUBJECT, such as debug:subject.")
    held = _attribute(_module(module_name), module_name, name)
    return Opened(target, _as_subject(held, target), _read_source())


def _read_source() -> tuple[Clue, ...]:
    """What the user's modules that are loaded by now say about themselves."""
    from clew.app.source_clues import loaded_files, source_clues

    clues, _ = source_clues(load(), loaded_files())
    return tuple(clues)


def _module(name: str) -> Any:
    from importlib import import_module

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ClewError(f"there is no module {name!r} in {os.getcwd()} or among what is installed.") from None
        raise ClewError(f"importing {name} failed{_at(error)}: {_short(error)}.") from error
    except SystemExit as error:
        raise ClewError(
            f"importing {name} ended the program (status {error.code}){_at(error)}; "
            "guard the script's code with if __name__ == '__main__'."
        ) from error
    except Exception as error:  # the user's module may raise anything
        raise ClewError(f"importing {name} failed{_at(error)}: {_short(error)}.") from error


def _attribute(module: Any, module_name: str, name: str) -> Any:
    held = module
    for part in name.split("."):
        if not hasattr(held, part):
            own = [known for known in dir(held) if not known.startswith("_")]
            hint = did_you_mean(part, own) or "."
            raise ClewError(f"the module {module_name} has no {name!r}{hint}")
        held = getattr(held, part)
    return held


def _as_subject(held: Any, target: str) -> "Subject":
    from clew.exams.subject import Subject

    if callable(held) and not isinstance(held, type) and not _is_module(held) and not isinstance(held, Subject):
        held = _called(held, target)
    if isinstance(held, Subject):
        return held
    if _is_module(held):
        raise ClewError(f"{target} is a model; give it a loss and batches: clew.Subject(model, loss, batches).")
    kind = f"the class {held.__name__}" if isinstance(held, type) else f"of type {type(held).__name__}"
    raise ClewError(f"{target} is {kind}, and neither a clew.Subject nor a function that returns one.")


def _is_module(held: Any) -> bool:
    return hasattr(held, "forward") and hasattr(held, "parameters")


def _called(function: Callable[[], Any], target: str) -> Any:
    from inspect import Parameter, signature

    try:
        needed = [
            item.name
            for item in signature(function).parameters.values()
            if item.default is Parameter.empty and item.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        ]
    except (TypeError, ValueError):
        needed = []
    if needed:
        raise ClewError(f"{target} takes arguments ({', '.join(needed)}); name a function that takes none.")
    try:
        return function()
    except ClewError as error:
        raise ClewError(f"{target}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ClewError(f"{target} failed{_at(error)}: {_short(error)}.") from error


def _short(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0][:200].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _at(error: BaseException) -> str:
    """The last line of the user's own code that an error came through."""
    from traceback import extract_tb

    if isinstance(error, SyntaxError) and error.filename:
        return f" at {os.path.relpath(error.filename)}:{error.lineno}"
    here = os.getcwd() + os.sep
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename.startswith(here)]
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    return f" at {os.path.relpath(own[-1].filename)}:{own[-1].lineno}" if own else ""


# --- planning and making


def _options(opened: Opened, request: Request) -> Any:
    from clew.exams.plan import Options

    keep = request.keep or (os.path.join(opened.folder, "exams") if opened.folder else "")
    again = f"clew exam {opened.name} --only " if ":" in opened.name or opened.run else ""
    return Options(
        domain=request.domain,
        only=request.only,
        thorough=request.thorough,
        keep=keep or None,
        reproduce=again,
    )


def plan(opened: Opened, request: Request) -> "Plan":
    """What would be made, in which order, and what it would cost."""
    from clew.exams.exam import find_exam
    from clew.exams.plan import make_plan

    known_domain(request.domain)
    for name in request.only:
        find_exam(name)
    return make_plan(opened.subject, load(), opened.clues, request.budget, _options(opened, request))


def make(
    opened: Opened,
    request: Request,
    planned: "Plan | None" = None,
    tell: "Callable[[Progress], None] | None" = None,
) -> Done:
    """Make the exams and weigh what they showed, together with what was seen before."""
    from clew.exams.plan import examine

    known_domain(request.domain)
    knowledge = load()
    options = _options(opened, request)
    examined = examine(opened.subject, knowledge, opened.clues, request.budget, tell, options, planned)
    return Done(opened, request, examined, _weigh(opened, request, examined))


def _weigh(opened: Opened, request: Request, examined: "Examined") -> CaseView:
    from clew.case.clues import join

    knowledge = load()
    clues = join(knowledge, [list(examined.clues), list(opened.clues)])
    case = Case(
        id=opened.run or opened.name,
        folder=opened.folder,
        symptom=f"clew exam {opened.name}",
        domain=request.domain,
        setting="routine",
        script=opened.name,
        code="",
        opened_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        entries=(),
        clues=tuple(HeldClue(index + 1, clue, "", "") for index, clue in enumerate(clues)),
        notes=(),
        own=(),
        preflights=(),
        closing=None,
        remarks=(*notes(opened, examined.plan), examined.ended, *_left_out(examined)),
    )
    seen = view(knowledge, case, most=40, by_hand=False)
    # What an exam could not tell it will not tell when asked again.
    made = {clue.test for clue in examined.clues}
    further = [choice for choice in seen.choices if choice.test not in made]
    verdict = without(seen.verdict, examined.left_out(opened.subject), opened.name)
    return seen._replace(choices=tuple(further[:MOST_NEXT]), verdict=verdict)


def _left_out(examined: "Examined") -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for item in examined.skipped:
        by_reason.setdefault(item.why, []).append(item.exam.name)
    return [f"not made: {', '.join(names)}, because: {why}" for why, names in by_reason.items()]


def notes(opened: Opened, planned: "Plan") -> tuple[str, ...]:
    """What could not be replayed."""
    return (*((planned.untrue,) if planned.untrue else ()), *opened.subject.parts())


# --- what there is to show


def every_exam() -> list[PlanLine]:
    _need_torch()
    from clew.exams.exam import all_exams

    return [PlanLine(exam.name, exam.seconds, exam.asks) for exam in all_exams().values()]


def plan_facts(opened: Opened, request: Request, planned: "Plan") -> PlanFacts:
    def lines(items: Any) -> tuple[PlanLine, ...]:
        return tuple(PlanLine(item.exam.name, item.seconds, item.exam.asks, item.why) for item in items)

    skipped = tuple((item.exam.name, item.why) for item in planned.skipped)
    said = notes(opened, planned)
    return PlanFacts(
        opened.name, request.budget, planned.step, lines(planned.first), lines(planned.then), skipped, said
    )


def facts(done: Done) -> ExamFacts:
    examined = done.examined
    keep = _options(done.opened, done.request).keep
    return ExamFacts(
        done.opened.name,
        len(examined.sats),
        examined.seconds,
        examined.ended,
        tuple((item.exam.name, item.why) for item in examined.skipped),
        notes(done.opened, examined.plan),
        near(keep) if keep and os.path.isdir(keep) else "",
        done.request.only,
    )


def to_json(done: Done) -> dict[str, Any]:
    """As CONTRACT has it, and what was planned and made."""
    table = case_json(done.seen)
    del table["case"]
    examined = done.examined
    table["command"] = "exam"
    table["run"] = {
        "id": done.opened.run,
        "script": done.opened.name,
        "argv": ["clew", "exam", done.opened.name],
        "steps": 0,
        "seconds": examined.seconds,
        "exit": None,
    }
    table["exams"] = {
        "budget_s": done.request.budget,
        "only": list(done.request.only),
        "step_s": examined.plan.step,
        "plan": [
            {"exam": item.exam.name, "test": item.exam.test, "estimate_s": item.seconds, "why": item.why}
            for item in (*examined.plan.first, *examined.plan.then)
        ],
        "made": [
            {"exam": sat.exam.name, "test": sat.exam.test, "seconds": sat.seconds, "outcome": clue.outcome}
            for sat, clue in zip(examined.sats, examined.clues, strict=True)
        ],
        "skipped": [{"exam": item.exam.name, "why": item.why} for item in examined.skipped],
        "interrupted": examined.interrupted,
        "ended": examined.ended,
        "notes": list(notes(done.opened, examined.plan)),
    }
    return table


# --- in Python


class Blamed(NamedTuple):
    """A cause with its credence; `kind` is "finding" when its mechanism was seen, otherwise "hypothesis"."""

    id: str
    credence: float
    kind: str
    where: tuple[Place, ...]
    says: str
    check: str


class Result:
    """What exams showed. Prints as a report, and shows as one in a notebook."""

    def __init__(self, done: Done) -> None:
        self.done = done

    @property
    def verdict(self) -> str:
        """fault, suspect, healthy or undecided."""
        return self.done.seen.verdict.word

    @property
    def clues(self) -> tuple[Clue, ...]:
        """What each exam showed, in the order in which they were made."""
        return self.done.examined.clues

    @property
    def causes(self) -> tuple[Blamed, ...]:
        """Findings first, then hypotheses, the most credible ones first."""
        return tuple(
            Blamed(
                row["id"],
                row["credence"],
                row["kind"],
                tuple(Place.from_json(place) for place in row["where"]),
                row["says"],
                row["check"],
            )
            for row in causes_json(self.done.seen)
        )

    @property
    def skipped(self) -> dict[str, str]:
        """Exams that were not made, and why."""
        return {item.exam.name: item.why for item in self.done.examined.skipped}

    @property
    def interrupted(self) -> bool:
        return self.done.examined.interrupted

    def to_json(self) -> dict[str, Any]:
        return to_json(self.done)

    def __str__(self) -> str:
        return str(exam_page(self.done.seen, facts(self.done), Page(100)))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return exam_html(self.done.seen, facts(self.done))


def examine(
    subject: "Subject",
    budget: float = BUDGET,
    *,
    only: "tuple[str, ...] | list[str]" = (),
    domain: str = "general",
    thorough: bool = False,
    keep: str = "",
    tell: "Callable[[Progress], None] | None" = None,
) -> Result:
    """Make exams on a subject for at most `budget` seconds and say what is wrong with it."""
    request = Request(_budget(budget), tuple(only), domain, thorough, keep)
    opened = Opened(_checked(subject).name, subject)
    return Result(make(opened, request, plan(opened, request), tell))


def exam(name: str, subject: "Subject", limit: float = BUDGET, *, seed: int = 0, keep: str = "") -> Clue:
    """Make one exam; the clue says what it measured, or why it is unclear."""
    _checked(subject)
    from clew.exams.exam import find_exam
    from clew.exams.plan import untrue
    from clew.exams.sit import clue_of, sit

    return clue_of(load(), sit(find_exam(name), subject, limit, seed, None, keep or None, untrue(subject)))


def _checked(subject: Any) -> "Subject":
    _need_torch()
    from clew.exams.subject import Subject

    if isinstance(subject, Subject):
        return subject
    raise ClewError(
        f"a clew.Subject(model, loss, batches) can be examined; something of type {type(subject).__name__} was given."
    )


def _budget(value: Any) -> float:
    return seconds_of(value if isinstance(value, str) else f"{float(value)!r}s")
