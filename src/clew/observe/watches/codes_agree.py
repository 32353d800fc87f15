"""Does a word get the same number in every set of rows?

Categories of pandas, `factorize` and encoders of scikit-learn count words from the rows at hand. What they counted is
kept by column, and two sets of rows that were counted by themselves are held against each other.

Why it matters: a word that is missing in the smaller set moves the numbers of all words after it. What was learned for
one brand is then applied to another, in validation and not in training.
Cannot tell: whether the numbers are inputs of the model; which of the two sets is for training; numbers that the
script counts by itself, or that `numpy.unique` gives.
Silent when: words that both sets have keep their numbers, rows of one set are rows of the other (folds, a table that
was numbered twice), there are more sets than a training run has (groups with numbers of their own), or the sets share
few words (another table with a column of that name).
"""

from __future__ import annotations

from clew.observe import coded
from clew.observe.ledger import LEDGER
from clew.observe.watch import Answer, Saw, Watch
from clew.records.clue import Unclear
from clew.records.place import ENCODED


class CodesAgree(Watch):
    test = "codes_agree"

    def read(self) -> Answer:
        if not LEDGER.coded:
            return Unclear(LEDGER.trouble or "no text column was encoded as numbers")
        told = coded.apart()
        if told is None:
            return Saw("agree", columns=len({held.column for held in LEDGER.coded}))
        one, other, word = told.one, told.other, told.example
        says = (
            f"{one.column} was encoded separately for {one.rows} rows and for {other.rows} rows: {word} is "
            f"{one.numbers[word]} in one set and {other.numbers[word]} in the other, and {told.moved:.0%} of "
            "the rows in the smaller set get another code than in the larger"
        )
        places = (held.place._replace(role=ENCODED) for held in (other, one) if held.place is not None)
        saw = Saw("differ", moved_share=told.moved, rows=min(one.rows, other.rows), column=one.column)
        return saw.at(*places).saying(says)
