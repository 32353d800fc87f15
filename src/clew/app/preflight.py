"""Before the run: what is likely to go wrong, and what somebody expects."""

import os
import re
from collections.abc import Collection
from typing import NamedTuple

from clew.app.before import Script
from clew.app.cases import code_digest, open_case
from clew.app.known import known_domain
from clew.app.source_clues import source, source_clues
from clew.case import log, store
from clew.case.weigh import Subject, weigh
from clew.errors import ClewError, did_you_mean
from clew.knowledge.base import load
from clew.knowledge.model import Cause, Test
from clew.records.case import Case

TRAINER = r"|Trainer|[Ll]ightning|\.fit\("
CLASSES = r"cross_entropy|CrossEntropy|nll_loss|NLLLoss|BCE|log_softmax|softmax|sigmoid|Classifier"
TARGETS = rf"\by(_\w+)?\b|\b[Yy]b\b|target|label|mse|MSE|l1_loss|L1Loss|[Hh]uber|{CLASSES}"
HELD_OUT = r"val|test|eval|held"
FITS = {
    r"data\.(labels|leak_target)": TARGETS,
    r"loss\.broadcast": rf"{TARGETS}|-[^\n]*(\*\* ?2|pow|square|abs)",
    r"data\.class_imbalance|loss\.(double_softmax|missing_activation)": CLASSES,
    r"data\.leak_(split|temporal)|data\.train_val|train\.train_mode_in_eval|loss\.metric": HELD_OUT,
    r"data\.augmentation": r"ransform|[Ff]lip|[Cc]rop|[Aa]ugment|[Jj]itter",
    r"data\.labels_masked|loss\.padding": r"pad|ignore_index|mask|-100",
    r"train\.grad_accum": r"accum",
    r"data\.wrong_normalization": r"[Nn]ormal|std|[Ss]cal|255",
    r"num\.low_precision": r"half|float16|fp16|bf16|autocast|amp",
    r"num\.(log_of_zero|overflow)": r"log|exp|pow",
    r"loss\.scale_imbalance": r"loss[^\n]*\+|\+[^\n]*loss",
}
"""Causes that need something in the source, as a pattern of names; a script without it is not told of them."""
DOMAINS = {
    "rl": r"\bgym(nasium)?\b|stable_baselines3|\benv\.step\(",
    "pinn": r"autograd\.grad\(.*create_graph",
    "llm": r"transformers|[Tt]okeni[sz]er|causal|GPT|tril\(",
    "vision": r"torchvision|timm|Conv2d",
    "timeseries": r"\bLSTM\b|\bGRU\b",
    "tabular": r"read_csv|sklearn",
}
LEAST = 0.01
SURPRISES = ("very surprising", "somewhat surprising", "not surprising")


class Danger(NamedTuple):
    """A failure that is likely for a subject, with the cheap check that would show it."""

    cause: Cause
    prior: float
    check: Test


def dangers(domain: str, most: int = 6, listed: Collection[str] = (), script: Script | None = None) -> list[Danger]:
    """What is most likely to go wrong: what is typical of the domain, filled up by prior; the likelier first, without
    what is listed already and what does not fit the script."""
    knowledge = load()
    clues, _ = source_clues(knowledge, script.files) if script else ([], "")
    text = "\n".join(source(path) for path in script.files) if script else ""
    held = weigh(knowledge, clues, Subject(known_domain(domain)))
    prior = {share.cause: share.credence for share in held.shares}
    typical = list(knowledge.domains[domain].typical)
    ranked = typical + [share.cause for share in held.shares if share.cause not in typical]
    causes = [
        knowledge.causes[name]
        for name in ranked
        if name in prior and not name.startswith("none.") and name not in listed
        if not text or (fits(name, text) and prior[name] >= LEAST)
    ]
    causes = sorted(causes[:most], key=lambda cause: -prior[cause.id])
    return [Danger(cause, prior[cause.id], knowledge.tests[cause.refute_test]) for cause in causes]


def domain_of(script: Script) -> str:
    """The domain that the names in a source suggest."""
    text = "\n".join(source(path) for path in script.files)
    return next((domain for domain, words in DOMAINS.items() if re.search(words, text)), "general")


def fits(cause: str, text: str) -> bool:
    return all(re.search(named + TRAINER, text) for causes, named in FITS.items() if re.match(causes, cause))


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
