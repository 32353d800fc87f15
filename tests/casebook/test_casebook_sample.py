"""A small sample of the casebook, run for real: the same six faults and three healthy programs every time.

About a minute on two cores, so it runs only where CLEW_CASEBOOK is set (`CLEW_CASEBOOK=1 pytest THIS_FILE`). The effect
of each fault was shown by the full examination; here the programs run under clew only, without exams.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clew.casebook.figures import figures
from clew.casebook.judge import Record, Trial, trial_of
from clew.casebook.mutate import right_lines
from clew.casebook.tables import Fault, faults, healthy, programs
from clew.casebook.work import Options, observed, prepared
from clew.knowledge.base import load

FAULTS = (
    "sinc_lbfgs.closure-never-clears",
    "sinc_lbfgs.x-in-metres",
    "notes_multilabel.sigmoid-first",
    "house_prices.matrices-dropped-by-the-factory",
    "house_prices.holdout-in-a-shard",
    "bird_probe.silent-recordings",
)
HEALTHY = ("sinc_lbfgs", "house_prices", "bird_probe")


def test_the_sample_names_faults_that_there_are() -> None:
    assert {*FAULTS} <= {item.id for item in faults()}


@pytest.mark.skipif(not os.environ.get("CLEW_CASEBOOK"), reason="about a minute; set CLEW_CASEBOOK to run it")
def test_the_sample_reaches_its_figures(tmp_path: Path) -> None:
    options = Options(str(tmp_path), exams=False)
    known = {item.id: item for item in faults()}
    work = [*(known[name] for name in FAULTS), *(healthy(name) for name in HEALTHY)]

    def one(item: Fault) -> Trial:
        program = programs()[item.program]
        seen = observed(item, program, 0, options, "sample")
        held = Trial(item, 0, "", "worse", None, None)
        return trial_of(Record(held, seen, tuple(right_lines(item, prepared(program, options)))), load())

    for name in dict.fromkeys(item.program for item in work):
        prepared(programs()[name], options)
    with ThreadPoolExecutor(max_workers=2) as pool:
        trials = list(pool.map(one, work))
    seen = figures(trials)
    assert not any(trial.error for trial in trials)
    assert seen.detected >= 5
    assert seen.third >= 5
    assert seen.first >= 5
    assert seen.alarms == 0
