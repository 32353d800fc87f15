"""A planned sweep as text: what it asks, what it costs, what it can show."""

from typing import NamedTuple

from clew.report.text import BOLD, DIM, YELLOW, Page, number, seconds

SHOWN = 8


class PlanFacts(NamedTuple):
    """`least_effect` is in standard deviations of the difference between two values in a seed."""

    name: str
    question: str
    hypothesis: str
    metric: str
    goal: str
    points: int
    seeds: int
    runs: int
    run_seconds: float | None
    total_seconds: float | None
    cost: float | None
    spread: float | None
    least_effect: float
    least_in_metric: float | None
    wanted: float | None
    needed: int | None
    power: float | None
    order: tuple[str, ...]
    confounding: tuple[str, ...]
    out_of_reach: bool


def plan_page(facts: PlanFacts, page: Page) -> Page:
    page.say(facts.question or f"Sweep {facts.name}", 0, "", BOLD)
    if facts.hypothesis:
        page.say(facts.hypothesis, 0, "Hypothesis: ")
    page.say(f"{facts.metric}, {'larger' if facts.goal == 'max' else 'smaller'} is better.", 0, "Metric: ")
    page.head("Cost")
    page.say(f"{facts.points} settings x {facts.seeds} seeds = {facts.runs} runs.", 2)
    if facts.total_seconds is not None and facts.run_seconds is not None:
        price = f", {facts.cost:.2f} in money" if facts.cost is not None else ""
        page.say(f"{seconds(facts.run_seconds)} each, {seconds(facts.total_seconds)} in all{price}.", 2)
    else:
        page.say("The time of one run is not known: give `seconds`, or measure one with --trial.", 2, "", DIM)
    page.head("What it can show (paired over seeds, 80 % power, 5 % level)")
    _power(facts, page)
    page.head("Order")
    for label in facts.order[:SHOWN]:
        page.say(label, 2)
    if len(facts.order) > SHOWN:
        page.say(f"and {len(facts.order) - SHOWN} more; whole seeds one after the other, so that it can stop early.", 2)
    for warning in facts.confounding:
        page.say(warning, 0, "Note: ", YELLOW)
    return page


def _power(facts: PlanFacts, page: Page) -> None:
    if facts.seeds < 2:
        page.say("One seed shows nothing: there is no spread to compare with.", 2, "", YELLOW)
        return
    metric = f", that is {number(facts.least_in_metric)} in {facts.metric}" if facts.least_in_metric else ""
    page.say(
        f"The smallest effect that {facts.seeds} seeds show is {facts.least_effect:.2f} standard deviations of the "
        f"difference between two values{metric}.",
        2,
    )
    if facts.out_of_reach:
        page.say("Two values need six seeds: with fewer, no result can reach p = 0.05.", 2, "", YELLOW)
    if facts.wanted is not None and facts.power is not None:
        unit = "" if facts.spread else " standard deviations"
        needed = f"{facts.needed} seeds" if facts.needed is not None else "more than 10,000 seeds"
        page.say(f"An effect of {number(facts.wanted)}{unit} is seen with {facts.power:.0%}; 80 % need {needed}.", 2)
