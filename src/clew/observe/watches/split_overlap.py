"""Are validation examples also in the training set?

Why it matters: a score on rows that were trained on measures memory.
Cannot tell: near copies, augmented copies, examples of one source.
In a stream that is read once, rows that are scored right after a step on them count as shared.
Silent when: the training set itself is evaluated for its own score, equal rows are as common inside the training set,
folds of a cross-validation change sides, and fewer than three twins are seen. Rows that training draws again and again
are no nature of the data: where such rows are held out too, the set was resampled before it was split.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from clew.observe.watch import Answer, Saw
from clew.observe.watches._data_feed import FedWatch, Feed
from clew.observe.watches._data_given import Group, Loader
from clew.observe.watches._data_names import HELD_OUT, TRAINING
from clew.observe.watches._data_share import Shared, shared
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.records.place import Place

FEWEST = 8
TRAINED = 24
BY_CALL = 48  # without a loader few rows may be anything, such as the positions that a layer is asked for
ALL = 0.9
NATURAL = 0.02
MINOR, REPEATED = 0.4, 0.7


class Compared(NamedTuple):
    found: Shared
    training_rows: int
    place: Place | None
    training_place: Place | None


class SplitOverlap(FedWatch):
    test = "split_overlap"

    def read(self) -> Answer:
        if self.feed.broken:
            return Unclear(self.feed.broken)
        loaders, doubtful = by_loader(self.feed)
        calls = by_call(self.feed)
        compared = loaders + calls
        late = None if compared else self._scored_late()
        if late is not None:
            return late
        if not compared:
            if doubtful:
                return Unclear(
                    "the only evaluation reads the training rows; whether it counts as validation is not known"
                )
            return Unclear("no evaluation on rows outside the training set was seen")
        worst = max(compared, key=lambda item: item.found.share)
        if worst.found.share <= 0.01 and self._augmented():
            return Unclear("training rows differ from epoch to epoch, so copies of them cannot be recognised")
        measured: dict[str, Any] = {
            "shared_share": worst.found.share,
            "twins_seen": worst.found.twins,
            "rows_compared": worst.found.rows,
            "training_rows": worst.training_rows,
        }
        places = [place for place in (worst.place, worst.training_place) if place is not None]
        return Reading(**measured).at(*dict.fromkeys(places))

    def _scored_late(self) -> Saw | None:
        """A stream whose batches are scored, but only after they were learned from."""
        course = max(self.feed.courses.values(), key=lambda held: held.scored_late(), default=None)
        if course is None or not course.scored_late() or any(held.later for held in self.feed.loaders.values()):
            return None
        says = (
            f"{course.scored_late()} batches were scored right after a step on them, and no others; one step "
            "earlier the same rows would have been new to the model"
        )
        return Saw("just_learned", batches=course.scored_late()).at(course.scored_at, course.place).saying(says)

    def _augmented(self) -> bool:
        """Whether fewer rows came back in later epochs than would have if they were always the same."""
        trained = [loader for loader in self.feed.loaders.values() if loader.trained]
        expected = [(loader.coverage() * loader.later, loader.known) for loader in trained]
        return any(rows >= FEWEST and known < 0.2 * rows for rows, known in expected)


def by_loader(feed: Feed) -> tuple[list[Compared], bool]:
    """Each evaluated loader against the loader that was trained on at the time."""
    results: list[tuple[Loader, Compared, Loader]] = []
    for loader in feed.loaders.values():
        partner = feed.loaders.get(loader.partner) if loader.partner is not None else None
        if not loader.evaluated or partner is None or loader.digested < FEWEST or partner.digested < TRAINED:
            continue
        found = shared(loader.rows, partner.rows, partner.twins(), partner.coverage())
        results.append((loader, Compared(found, partner.digested, loader.place, partner.place), partner))
    apart = any(result.found.share < 0.01 for _, result, _ in results)
    kept = [result for loader, result, partner in results if counts(loader, result, partner, apart)]
    return kept, len(kept) < len(results)


def counts(loader: Loader, result: Compared, partner: Loader, apart: bool) -> bool:
    """Whether a loader is a validation set, or the training set read once more for its own score."""
    if result.found.share < 0.01:
        return True
    if result.found.share < ALL:
        expected = partner.coverage() * partner.later
        if expected >= FEWEST and partner.known < 0.9 * expected:
            return loader.called == HELD_OUT  # an augmented training set, read as it is, shares a part of its rows
        return loader.called != TRAINING or expected >= FEWEST
    if loader.called is not None:
        return loader.called == HELD_OUT
    size, whole = loader.source.size, partner.source.size
    return not apart and size is not None and whole is not None and size < 0.9 * whole


def by_call(feed: Feed) -> list[Compared]:
    """Inputs without a loader: only those count that the script calls a validation or test set."""
    partner = feed.loaders.get(feed.training) if feed.training is not None else None
    known = dict(feed.trained)
    coverage, twins, place = 1.0, feed.natural(len(known)), None
    if partner is not None and partner.digested >= len(known):
        known |= dict.fromkeys(partner.rows)
        coverage, twins, place = partner.coverage(), partner.twins(), partner.place
    repeated = partner is not None and partner.repeated()
    coverage = 1.0 if repeated else coverage  # of rows that come again and again one is soon seen
    if len(known) < BY_CALL or (feed.twins > NATURAL and not repeated):
        return []
    found = []
    for group in feed.groups.values():
        if group.called == TRAINING or len(group.rows) < FEWEST or not group.wholes.isdisjoint(feed.repeats):
            continue  # the very input that is trained on: masks or another model's loss tell the parts apart
        result = shared(dict.fromkeys(group.rows, 1), known, twins, coverage)
        # Without a name it may be rows of training; then not only those are shared that come again and again.
        some = repeated and partner is not None and result.share < MINOR and _those_repeated(group, partner)
        if group.called == HELD_OUT or result.twins == 0 or some:
            found.append(Compared(result, len(known), group.place, place))
    return found


def _those_repeated(group: Group, partner: Loader) -> bool:
    counts = [partner.rows[row] for row in group.rows if row in partner.rows]
    return sum(count > 1 for count in counts) > REPEATED * len(counts)
