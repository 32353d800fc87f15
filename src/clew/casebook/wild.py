"""Public training scripts: which ones, how they are run, and what clew says about them.

Only names, commits and commands are kept here (`wild.toml`). The repositories are fetched by whoever wants to run them,
as DIR/OWNER+NAME, DIR/OWNER/NAME or DIR/NAME, and the scripts run where they lie.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from clew.casebook.tables import HERE
from clew.casebook.work import LONGEST, clew_digest, digest, environment, keep, kept
from clew.errors import ClewError, did_you_mean

TABLE = os.path.join(HERE, "wild.toml")
KEPT = ".clew-wild"
DATA = "{data}"
KEYS = {"id", "repository", "folder", "command", "steps", "domain", "path", "environment", "needs", "edit", "judged"}
KEYS |= {"said", "named"}
NEEDED = ("id", "repository", "folder", "command")
ALARMS = ("fault", "suspect")


class Script(NamedTuple):
    """One script. `edit`: texts and what to put for each. `judged`: what a reader of its code held it to be before
    clew saw it. `said`, `named`, `on`: verdict and findings of the last run that somebody looked at, with its date and
    the version of clew."""

    id: str
    repository: str
    commit: str
    folder: str
    command: tuple[str, ...]
    steps: int
    domain: str
    path: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    needs: str
    edit: tuple[tuple[str, str], ...] = ()
    judged: str = ""
    said: str = ""
    named: tuple[str, ...] = ()
    on: str = ""


class Outcome(NamedTuple):
    """What clew said now; `note` says why it said nothing, or what else is to know."""

    verdict: str
    named: tuple[str, ...] = ()
    steps: int = 0
    seconds: float = 0.0
    note: str = ""


Found = list[tuple[Script, Outcome | None]]


def scripts(path: str = TABLE) -> list[Script]:
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ClewError(f"{path}: {error.strerror}; name a list of scripts in the form of wild.toml.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ClewError(f"{path} is not TOML: {error}.") from None
    found = []
    name = os.path.basename(path)
    if not isinstance(table.get("script"), list) or not isinstance(table.get("repositories"), dict):
        raise ClewError(f"{name} lists no scripts: it needs [repositories] and [[script]], as wild.toml has them.")
    for row in table["script"]:
        if unknown := row.keys() - KEYS:
            raise ClewError(f"script {row.get('id')!r} of {name} has an unknown field {sorted(unknown)[0]!r}.")
        if missing := [field for field in NEEDED if field not in row]:
            raise ClewError(f"script {row.get('id')!r} of {name} has no {missing[0]}.")
        if row["repository"] not in table["repositories"]:
            raise ClewError(f"script {row['id']!r} of {name}: the commit of {row['repository']} is not given.")
        found.append(
            Script(
                row["id"],
                row["repository"],
                table["repositories"][row["repository"]],
                row["folder"],
                tuple(row["command"]),
                row.get("steps", 0),
                row.get("domain", "general"),
                tuple(row.get("path", ())),
                tuple(sorted(row.get("environment", {}).items())),
                row.get("needs", ""),
                tuple((old, new) for old, new in row.get("edit", ())),
                row.get("judged", ""),
                row.get("said", ""),
                tuple(row.get("named", ())),
                f"{table['on']}, clew {table['version']}" if "on" in table else "",
            )
        )
    return found


def chosen(everything: list[Script], only: list[str]) -> list[Script]:
    names = {name for script in everything for name in (script.id, script.repository)}
    for word in only:
        if word not in names:
            raise ClewError(
                f"no script or repository of the list is called {word!r}{did_you_mean(word, sorted(names))}"
            )
    return [script for script in everything if not only or script.id in only or script.repository in only]


def checkout(script: Script, folder: str) -> str | None:
    """Where the repository lies, None when it was not fetched."""
    owner, name = script.repository.split("/")
    places = (os.path.join(folder, part) for part in (f"{owner}+{name}", os.path.join(owner, name), name))
    return next((place for place in places if os.path.isdir(place)), None)


def commit_of(place: str) -> str:
    """The commit that is checked out; empty where that cannot be told."""
    if not os.path.exists(os.path.join(place, ".git")):
        return ""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=place, capture_output=True, text=True)
    return done.stdout.strip()


def command_of(script: Script, folder: str, answer: str, budget: int) -> list[str]:
    own = ["--quiet", "--json", answer, "--domain", script.domain]
    own += ["--budget", f"{budget}s"] if budget else ["--no-exams"]
    own += ["--steps", str(script.steps)] if script.steps else []
    words = [word.replace(DATA, os.path.join(folder, "data")) for word in script.command]
    return [sys.executable, "-P", "-m", "clew", "run", *own, *words]


def edited(script: Script, at: str, folder: str) -> Script:
    """The script as it is run: itself, or a copy beside it with its `edit` made. All texts to replace must be there."""
    if not script.edit:
        return script
    with open(os.path.join(at, script.command[0]), encoding="utf-8", newline="") as file:
        text = file.read()
    for old, new in script.edit:
        if old not in text:
            raise ClewError(f"{script.command[0]} does not hold {old!r}, which `edit` replaces.")
        text = text.replace(old, new.replace(DATA, os.path.join(folder, "data")))
    # Beside the original, so that what it imports and opens is found; named by the entry, since two may edit one file.
    copy = os.path.join(os.path.dirname(script.command[0]), f"{script.id.replace('-', '_')}_edited.py")
    with open(os.path.join(at, copy), "w", encoding="utf-8", newline="") as file:
        file.write(text)
    return script._replace(command=(copy, *script.command[1:]))


def run_one(script: Script, folder: str, version: str, budget: int) -> Outcome:
    """Run one under clew where it lies, once for each commit and version of clew, with `budget` seconds of exams."""
    place = checkout(script, folder)
    if place is None:
        return Outcome("", note="not fetched")
    commit = commit_of(place)
    other = commit and commit != script.commit
    home = os.path.join(folder, KEPT)
    path = os.path.join(home, f"{script.id}-{digest(script[:-4], commit, version, budget)}.json")
    answer = kept(path)
    if answer is None:
        answer = _run(script, folder, place, path, budget)
    if answer is None or "verdict" not in answer:
        return Outcome("", note=(answer or {}).get("error", "clew gave no answer"))
    named = tuple(cause["id"] for cause in answer["causes"] if cause["kind"] == "finding")
    lead = answer["causes"][0]["id"] if answer["causes"] else ""
    named = named or ((lead,) if answer["verdict"] in ALARMS else ())
    run = answer["run"]
    note = "another commit" if other else ""
    return Outcome(answer["verdict"], named, run["steps"], run["seconds"], note)


def _run(script: Script, folder: str, place: str, path: str, budget: int) -> dict[str, Any] | None:
    home = os.path.dirname(path)
    os.makedirs(home, exist_ok=True)
    said = f"{path}.answer"
    search = [os.path.join(place, part) for part in script.path]
    own = dict(script.environment).get("PYTHONPATH")
    search += [part for part in (own, os.environ.get("PYTHONPATH")) if part]
    env = {**environment(), **dict(script.environment), "MPLBACKEND": "Agg", "CLEW_HOME": os.path.join(home, "home")}
    env |= {"PYTHONPATH": os.pathsep.join(search)} if search else {}
    at = os.path.join(place, script.folder)
    try:
        done = subprocess.run(
            command_of(edited(script, at, folder), folder, said, budget),
            cwd=at,
            env=env,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=LONGEST,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"given up after {LONGEST} s"}
    except OSError as error:
        return {"error": f"{at}: {error.strerror}"}
    except ClewError as error:
        return {"error": str(error)}
    answer = kept(said)
    if answer is None:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return {"error": last[:100]}
    os.unlink(said)
    if answer["run"]["exit"] and not answer["run"]["steps"]:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return {"error": f"ends with status {answer['run']['exit']} before the first step: {last[:80]}"}
    keep(path, {key: answer[key] for key in ("verdict", "causes", "clues", "run")})
    return answer


def run_all(
    chosen: list[Script], folder: str, jobs: int, budget: int, tell: Callable[[Script, Outcome], None] | None = None
) -> Found:
    folder = os.path.abspath(folder)
    if not os.path.isdir(folder):
        raise ClewError(f"{folder} is not a folder; fetch the repositories of the list into one.")
    version = clew_digest()

    def one(script: Script) -> Outcome:
        outcome = run_one(script, folder, version, budget)
        if tell is not None:
            tell(script, outcome)
        return outcome

    with ThreadPoolExecutor(max_workers=jobs) as pool:
        return list(zip(chosen, pool.map(one, chosen), strict=True))


def say(script: Script, outcome: Outcome) -> None:
    print(f"{script.id}: {outcome.verdict or outcome.note}", file=sys.stderr, flush=True)


def table(found: Found) -> str:
    """What was said of each before and, where it was run, what clew says now."""
    rows = [["script", "repository", "said", "says now", "names"]]
    for script, outcome in found:
        named = outcome.named if outcome else script.named
        now = (outcome.verdict or outcome.note) if outcome else ""
        now += f" ({outcome.note})" if outcome and outcome.verdict and outcome.note else ""
        rows.append([script.id, script.repository, script.said or _judged(script), now, ", ".join(named[:2])])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", *summaries(found)])


def _judged(script: Script) -> str:
    return f"judged {script.judged.partition(':')[0]}" if script.judged else ""


def summaries(found: Found) -> list[str]:
    if not found:
        return ["Nothing of the list fits."]
    said = [script.said for script, _ in found if script.said]
    run = [(script, outcome.verdict) for script, outcome in found if outcome and outcome.verdict]
    lines = [summary(said, f"({found[0][0].on})")] if said else []
    lines += [summary([verdict for _, verdict in run], "now")] if any(outcome for _, outcome in found) else []
    for kind, what in (("healthy", "false alarms"), ("fault", "alarms")):
        verdicts = [verdict for script, verdict in run if script.judged.startswith(kind)]
        alarms = sum(word in ALARMS for word in verdicts)
        lines += [f"Judged {kind} by reading: {what} on {alarms} of {len(verdicts)}."] if verdicts else []
    return lines or [f"{len(found)} script{'s' * (len(found) != 1)}, none run yet."]


def summary(verdicts: list[str], when: str) -> str:
    alarms = sum(word in ALARMS for word in verdicts)
    count = len(verdicts)
    return f"{count} script{'s' * (count != 1)} run {when}, an alarm on {alarms} of them."


def to_json(found: Found) -> dict[str, Any]:
    return {
        "schema": "clew/1",
        "command": "casebook wild",
        "scripts": [
            {**script._asdict(), "environment": dict(script.environment), "now": outcome._asdict() if outcome else None}
            for script, outcome in found
        ],
    }
