"""Do the returns of the agent rise above those of its first episodes?

Adds up the rewards of every episode as the environment gives them, and sets the last fifth of the training against the
first episodes, which an untrained policy played.

Why it matters: losses of an agent say little. Whatever is wrong, an agent that has come to do worse than it did
untrained follows something else than the reward of its environment.
Cannot tell: why. A reward that pays for the wrong thing is followed as faithfully as the right one.
Silent when: rewards are divided by something that moves with them; few episodes; a difference that chance could bring.
Agents that learn the values of actions do worse at first than random play, as long as they have learned little.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from clew.observe.watch import Answer
from clew.observe.watches._rl_lines import reward_lines
from clew.observe.watches._rl_study import Studied
from clew.records.clue import Saw, Unclear

if TYPE_CHECKING:
    from clew.observe.episodes import Stretch
    from clew.observe.watches._rl_study import Study

EPISODES = 10
LATE = 0.2
UPDATES = 20
OFF_POLICY = 5000
ERRORS = 4.0
SOME = 0.1
LONG = 100


class ReturnsCourse(Studied):
    test = "returns_course"

    def read(self) -> Answer:
        why = self.unseen()
        return Unclear(why) if why else course_of(self.study, self.recorder.step)


def course_of(study: Study, last: int) -> Answer:
    """What the returns came to, before the last of so many updates."""
    course = study.experience.episodes.main(last)
    held = [] if course is None else course.until(last)
    count = sum(each.episodes for each in held)
    if course is None or not course.first or count < 2 * EPISODES or last < UPDATES:
        return Unclear(f"only {count} episodes ended during {last} updates")
    if course.normalised:
        return Unclear("a wrapper divides the rewards by a running statistic")
    first, late = joined(course.first, count), joined(held[::-1], max(EPISODES, count // 5))
    gain = late.mean - first.mean
    error = (first.variance / first.episodes + late.variance / late.episodes) ** 0.5
    size = max(abs(first.mean), abs(late.mean), first.variance**0.5)
    figures = {"first": first.mean, "last": late.mean, "episodes": count, "updates": last}
    clear = abs(gain) > ERRORS * error and abs(gain) > SOME * size
    said = f"the first {first.episodes} episodes returned {first.mean:.4g}, the last {late.episodes} {late.mean:.4g}"
    places = (*reward_lines(course.kind), study.experience.place)
    if clear and gain > 0:
        return Saw("rises", **figures).saying(said).at(*places)
    if not study.policy.acts and last < OFF_POLICY:
        return Unclear("the returns have not risen, which says little where values are learned from old transitions")
    if clear:
        return Saw("falls", **figures).saying(said).at(*places)
    best = max((each.mean for each in windows(held, late.episodes)), default=late.mean)
    if best > first.mean + max(ERRORS * error, SOME * size):
        return Unclear("the returns were higher in the middle and are back at the start")
    if gain > 2 * error and gain > SOME * size:
        return Unclear("the returns are higher at the end, but too noisy to be sure")
    if last < LONG or first.variance == 0.0:
        return Unclear("the returns have not moved, and the run is short or they never vary")
    return Saw("level", **figures).saying(said).at(*places)


def joined(held: list[Stretch], episodes: int) -> Stretch:
    """So many episodes from the beginning of a list, or a few more."""
    found = held[0]
    for each in held[1:]:
        if found.episodes >= episodes:
            break
        found = found.plus(each)
    return found


def windows(held: list[Stretch], episodes: int) -> list[Stretch]:
    """The whole course in parts of about so many episodes."""
    ends = list(accumulate(each.episodes for each in held))
    found: dict[int, Stretch] = {}
    for each, end in zip(held, ends, strict=True):
        part = (end - 1) // max(1, episodes)
        found[part] = found[part].plus(each) if part in found else each
    return [each for each in found.values() if 2 * each.episodes >= episodes]
