"""Which exams to make, in which order, and when to stop.

First what decides whether a good loss means anything. Then the triage order of the knowledge base, within one of its
questions the cheap exams before the dear ones. An exam that would take a good part of the budget waits until all cheap
ones are made, those too that no question names: a mechanism that is seen in half a second spares the rest. Then
whatever the engine finds most worth its time among the exams that are left, until one cause stands out, the budget is
spent, or nothing tells the explanations apart any more. What was seen before by watching is not asked again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch

from clew.case import weigh as weighing
from clew.case.choose import choose
from clew.case.clues import join
from clew.case.conduct import is_null
from clew.exams.checks.causal_independence import may_predict_next
from clew.exams.exam import DECIDING, Exam, all_exams, find_exam
from clew.exams.lab import Lab, apart, seed_all
from clew.exams.sit import OVER, Sat, clue_of, missing, sit
from clew.exams.subject import Subject
from clew.knowledge.model import Knowledge
from clew.records.clue import UNCLEAR, Clue, Unclear

BUDGET = 60.0
STANDS_OUT = 0.9
LEAST_WORTH = 2e-4
"""Bits per second, a second counted for the start. An exam that is expected to tell less is not worth its time."""
DEAR = 0.05
"""The share of the budget from which on an exam waits until the cheap ones are made."""
PASSES = 10
"""An exam that does not train still calls the model about this often."""
PATIENCE, SHORTEST_LIMIT = 2.0, 5.0
"""An exam over its estimate is stopped. While no other planned exam needs the time it may take so many times its
estimate, or so many seconds: a machine that other work makes slow must not change what is found."""


OF_LABELS = frozenset(
    "label_counts confident_errors input_ablation label_permutation label_signal learning_curve lr_range "
    "metric_oracle mirrored_classes nearest_neighbour_overlap other_rate shortcut simple_baseline "
    "target_in_input".split()
)
"""Exams that take the batches for examples with labels."""
COMPARES = 100
"""An exam of so many training steps compares trainings of one loss, as if nothing else learned meanwhile."""


class Planned(NamedTuple):
    """An exam with what it is expected to take, and why it is made."""

    exam: Exam
    seconds: float
    why: str


class Skipped(NamedTuple):
    exam: Exam
    why: str
    for_time: bool = False


class Plan(NamedTuple):
    """`first` is made in this order, `then` are those that the engine chooses from. `step` is the time of one training
    step in seconds, NaN when it could not be measured; `untrue` says why the captured step cannot be replayed."""

    first: tuple[Planned, ...]
    then: tuple[Planned, ...]
    skipped: tuple[Skipped, ...]
    step: float
    untrue: str = ""

    @property
    def seconds(self) -> float:
        return sum(planned.seconds for planned in self.first)


class Progress(NamedTuple):
    """How far things are: the exam at work, its share done, the seconds it has taken and those spent in all; at its end
    what it showed."""

    planned: Planned
    share: float
    took: float
    spent: float
    clue: Clue | None = None


class Options(NamedTuple):
    """`thorough`: go on when a cause stands out and when little more can be learned. `keep`: a folder for what a person
    should look at. `reproduce`: the command that makes an exam again, up to its name."""

    domain: str = "general"
    setting: str = "routine"
    only: tuple[str, ...] = ()
    thorough: bool = False
    keep: str | None = None
    reproduce: str = ""
    seed: int = 0


class Examined(NamedTuple):
    """What was made and learned. `clues` are those of the exams, in order; `ended` says why no more were made."""

    sats: tuple[Sat, ...]
    clues: tuple[Clue, ...]
    plan: Plan
    skipped: tuple[Skipped, ...]
    interrupted: bool
    ended: str
    seconds: float

    def left_out(self, subject: Subject) -> tuple[str, ...]:
        """The deciding exams that have no answer for want of time."""
        late = [sat.exam for sat in self.sats if isinstance(sat.answer, Unclear) and sat.answer.why.startswith(OVER)]
        short = [*(item.exam for item in self.skipped if item.for_time), *late]
        names = {exam.name for exam in short if _decides(exam, subject)}
        return tuple(name for name in DECIDING if name in names)


Tell = Callable[[Progress], None]
DEFAULTS = Options()


def step_seconds(subject: Subject) -> float:
    """The time of one training step on a copy, the second of two: the first one warms up. NaN when it fails."""
    with apart():
        seed_all(0)
        lab = Lab(subject)
        try:
            model = lab.fresh()
            trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            optimizer = torch.optim.Adam(trained or list(model.parameters()), lr=0.0)
            for _ in range(2):
                began = time.perf_counter()
                lab.one_step(model, lab.batch, optimizer)
                # Reading a number waits for a device that works ahead of Python.
                float(next(model.parameters()).detach().flatten()[0])
                took = time.perf_counter() - began
                if took > 1.0:
                    break
        except Exception:  # noqa: BLE001  # the exams themselves will say what is wrong with it
            return math.nan
    return took


def estimate(exam: Exam, step: float) -> float:
    """Seconds that an exam takes: its steps, or what it takes on a small network where it makes none."""
    if math.isnan(step):
        return exam.seconds
    return exam.steps * step if exam.steps else max(exam.seconds, PASSES * step)


def make_plan(
    subject: Subject,
    knowledge: Knowledge,
    clues: Iterable[Clue] = (),
    budget: float = BUDGET,
    options: Options = DEFAULTS,
) -> Plan:
    """The exams to make with their cost. Measures one training step to know it."""
    why_untrue = untrue(subject)
    step = math.nan if why_untrue else step_seconds(subject)
    exams = {name: find_exam(name) for name in options.only} if options.only else all_exams()
    known = {clue.test: clue for clue in clues if clue.outcome != UNCLEAR}
    skipped: list[Skipped] = []
    able: list[Exam] = []
    for exam in exams.values():
        why = missing(exam, subject) or _beside(exam, knowledge, known, options)
        cost = estimate(exam, step)
        if not why and cost > budget:
            why = f"would take about {cost:.0f} s, more than the budget of {budget:.0f} s"
        if why:
            skipped.append(Skipped(exam, why, cost > budget))
        else:
            able.append(exam)
    if options.only:
        asked, over = _within([Planned(exam, estimate(exam, step), "asked for") for exam in able], budget)
        why = f"what comes before it takes the budget of {budget:.0f} s"
        return Plan(tuple(asked), (), (*skipped, *(Skipped(item.exam, why, True) for item in over)), step, why_untrue)
    first = _triage(knowledge, able, step)
    chosen = {planned.exam.name for planned in first}
    rest = [Planned(exam, estimate(exam, step), "") for exam in able if exam.name not in chosen]
    rest.sort(key=lambda planned: (planned.seconds, planned.exam.name))
    dear = [planned for planned in first if planned.seconds > DEAR * budget]
    if dear:
        cheap = [planned for planned in rest if planned.seconds <= DEAR * budget]
        first = [planned for planned in first if planned not in dear]
        first += [*(planned._replace(why="cheap") for planned in cheap), *dear]
        rest = rest[len(cheap) :]
    deciding = [Planned(exam, estimate(exam, step), "decides") for exam in able if _decides(exam, subject)]
    deciding.sort(key=lambda planned: DECIDING.index(planned.exam.name))
    names = {planned.exam.name for planned in deciding}
    first = [*deciding, *(planned for planned in first if planned.exam.name not in names)]
    rest = [planned for planned in rest if planned.exam.name not in names]
    first, over = _within(first, budget)
    return Plan(tuple(first), (*over, *rest), tuple(skipped), step, why_untrue)


def _decides(exam: Exam, subject: Subject) -> bool:
    return exam.name in DECIDING and (exam.name != DECIDING[0] or may_predict_next(subject.batches[0]))


def _within(planned: list[Planned], budget: float) -> tuple[list[Planned], list[Planned]]:
    """What fits into the budget in this order, and what waits for time that others leave."""
    fits: list[Planned] = []
    over: list[Planned] = []
    for item in planned:
        budget -= item.seconds
        (fits if budget >= 0 else over).append(item)
        budget += item.seconds * (budget < 0)
    return fits, over


def untrue(subject: Subject) -> str:
    """Why replaying a captured step would show nothing, as a sentence; nothing when it is as it was in the run."""
    ask = getattr(subject, "untrue", None)
    if ask is None:
        return ""
    try:
        return str(ask() or "")
    except Exception as error:  # noqa: BLE001  # what cannot be replayed at all is not true either
        return f"the captured step cannot be replayed: {type(error).__name__}: {str(error).partition(chr(10))[0][:200]}"


def _beside(exam: Exam, knowledge: Knowledge, known: dict[str, Clue], options: Options) -> str:
    """Why an exam would be beside the point; only in a game also when it was asked for by name."""
    if (exam.steps >= COMPARES or exam.name in OF_LABELS) and _is_game(known):
        return "networks with an optimiser each train against each other: a copy that trains alone shows nothing"
    if options.only:
        return ""
    if exam.test in known:
        return "already answered"
    if options.domain == "rl" and exam.name in OF_LABELS and not options.only:
        return "an RL agent has no fixed labels: its targets move and its states recur"
    if not weighing.applies(knowledge, knowledge.tests[exam.test], options.domain):
        return f"does not apply to the domain {options.domain}"
    return ""


def _is_game(known: dict[str, Clue]) -> bool:
    """Whether the loss of one optimiser went through the network of another."""
    order = known.get("event_order")
    return "players_pull" in known or (order is not None and "through_others" in dict(order.measured))


def _triage(knowledge: Knowledge, exams: list[Exam], step: float) -> list[Planned]:
    """In the order of the questions; within one, which names its tests in no order, the cheap ones first."""
    found: dict[str, Planned] = {}
    for question in sorted(knowledge.triage.values(), key=lambda held: held.order):
        fitting = [Planned(exam, estimate(exam, step), question.asks) for exam in exams if exam.test in question.tests]
        for planned in sorted(fitting, key=lambda held: (held.seconds, held.exam.name)):
            found.setdefault(planned.exam.name, planned)
    return list(found.values())


def stands_out(knowledge: Knowledge, held: weighing.Weighing) -> str:
    """The cause that needs no further exam: its mechanism was seen, or hardly anything else is left."""
    if held.findings:
        return held.findings[0].cause
    lead = held.shares[0]
    return lead.cause if lead.credence > STANDS_OUT and not is_null(knowledge, lead.cause) else ""


def examine(
    subject: Subject,
    knowledge: Knowledge,
    clues: Iterable[Clue] = (),
    budget: float = BUDGET,
    tell: Tell | None = None,
    options: Options = DEFAULTS,
    plan: Plan | None = None,
) -> Examined:
    """Make exams until it is clear what is wrong, nothing more can be learned, or the budget is spent. An interrupt
    ends it too, and what was learned by then is returned."""
    began = time.monotonic()
    given = tuple(clues)
    interrupted = False
    held: _Sitting | None = None
    try:
        plan = plan or make_plan(subject, knowledge, given, budget, options)
        held = _Sitting(subject, knowledge, given, plan, options, budget, began, tell)
        held.work()
    except KeyboardInterrupt:
        interrupted = True
    if held is None or plan is None:
        empty = plan or Plan((), (), (), math.nan)
        return Examined((), (), empty, empty.skipped, True, "interrupted", time.monotonic() - began)
    if interrupted:
        held.ended = "interrupted"
        held.skip_rest("interrupted before it ran")
    return Examined(
        tuple(held.sats),
        tuple(held.made),
        plan,
        (*plan.skipped, *held.skipped),
        interrupted,
        held.ended,
        time.monotonic() - began,
    )


class _Sitting:
    """The exams in the making."""

    def __init__(
        self,
        subject: Subject,
        knowledge: Knowledge,
        given: tuple[Clue, ...],
        plan: Plan,
        options: Options,
        budget: float,
        began: float,
        tell: Tell | None,
    ) -> None:
        self.subject, self.knowledge, self.given, self.plan, self.options = subject, knowledge, given, plan, options
        self.budget, self.began, self.tell = budget, began, tell
        self.sats: list[Sat] = []
        self.made: list[Clue] = []
        self.skipped: list[Skipped] = []
        self.ended = "every exam that applies was run"
        self.kind = weighing.Subject(options.domain, options.setting)
        self.at = began

    def spent(self) -> float:
        return time.monotonic() - self.began

    def left(self) -> float:
        return self.budget - self.spent()

    def clues(self) -> list[Clue]:
        return join(self.knowledge, [self.made, list(self.given)])

    def open(self) -> list[Planned]:
        """The exams that were neither made nor skipped."""
        gone = {sat.exam.name for sat in self.sats} | {item.exam.name for item in self.skipped}
        return [planned for planned in (*self.plan.first, *self.plan.then) if planned.exam.name not in gone]

    def skip_rest(self, why: str, for_time: bool = False) -> None:
        self.skipped += [Skipped(planned.exam, why, for_time) for planned in self.open()]

    def work(self) -> None:
        for planned in self.queue():
            left = self.left()
            if left <= 0:
                self.ended = f"stopped at the time limit of {self.budget:.0f} s (--budget gives more)"
                self.skip_rest("the budget was used up", True)
                return
            if planned.seconds > left:
                self.ended = "the remaining exams did not fit into the budget"
                why = f"would take about {planned.seconds:.0f} s, and {left:.0f} s of the budget were left"
                self.skipped.append(Skipped(planned.exam, why, True))
            else:
                self.make(planned)

    def queue(self) -> Iterator[Planned]:
        for planned in self.plan.first:
            if self.over():
                return
            yield planned
        while not self.over() and (chosen := self.choice()) is not None:
            yield chosen

    def over(self) -> bool:
        """Whether a cause stands out; a person who names exams or asks for all of them gets them all."""
        if self.options.only or self.options.thorough:
            return False
        cause = stands_out(self.knowledge, weighing.weigh(self.knowledge, self.clues(), self.kind))
        if cause:
            self.ended = f"one cause stands out: {cause}"
            self.skip_rest(f"{cause} stands out already")
        return bool(cause)

    def choice(self) -> Planned | None:
        """Of the exams that are left, the one that tells most for its time."""
        answered = {clue.test for clue in self.made if clue.outcome != UNCLEAR}
        left = {held.exam.test: held for held in reversed(self.open()) if held.exam.test not in answered}
        if not left:
            return None
        clues = self.clues()
        held = weighing.weigh(self.knowledge, clues, self.kind)
        choices = choose(self.knowledge, held, clues, self.kind, most=len(self.knowledge.tests))
        able = [choice._replace(cost=left[choice.test].seconds) for choice in choices if choice.test in left]
        if not self.options.thorough:
            able = [choice for choice in able if choice.gain >= LEAST_WORTH * (1.0 + choice.cost)]
        if not able:
            self.ended = "no remaining exam would tell more"
            self.skip_rest("would tell too little for its time")
            return None
        best = max(able, key=lambda choice: choice.worth)
        return left[best.test]._replace(why=f"worth {best.gain:.2g} bits")

    def limit(self, planned: Planned) -> float:
        """Seconds after which an exam is stopped."""
        firsts = {item.exam.name for item in self.plan.first} - {planned.exam.name}
        spare = self.left() - sum(item.seconds for item in self.open() if item.exam.name in firsts)
        patience = max(SHORTEST_LIMIT, PATIENCE * planned.seconds)
        return min(self.left(), max(planned.seconds, min(spare, patience)))

    def make(self, planned: Planned) -> None:
        limit = self.limit(planned)
        self.at = time.monotonic()
        self.say(planned, 0.0)
        sat = sit(
            planned.exam,
            self.subject,
            limit,
            self.options.seed,
            lambda share: self.say(planned, share),
            self.options.keep,
            self.plan.untrue,
        )
        if self.plan.untrue and sat.answer == Unclear(self.plan.untrue):
            self.skipped.append(Skipped(planned.exam, "calls the model, which cannot be replayed"))
            return
        again = f"{self.options.reproduce}{planned.exam.name}" if self.options.reproduce else ""
        clue = clue_of(self.knowledge, sat, again)
        self.sats.append(sat)
        self.made.append(clue)
        self.say(planned, 1.0, clue)

    def say(self, planned: Planned, share: float, clue: Clue | None = None) -> None:
        if self.tell is not None:
            self.tell(Progress(planned, share, time.monotonic() - self.at, self.spent(), clue))
