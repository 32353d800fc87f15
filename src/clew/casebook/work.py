"""Running programs: bare, and under clew. What was run once is kept by the digest of all that decides its outcome."""

import hashlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import time
from typing import Any, NamedTuple

import clew
from clew.app.domain import domain_seen
from clew.casebook.first import FirstSteps
from clew.casebook.mutate import mutate
from clew.casebook.spoil import SPOILERS
from clew.casebook.tables import PROGRAMS, Fault, Program
from clew.errors import ClewError
from clew.knowledge.measured import NAME as MEASURED
from clew.observe.collect import processes

LAUNCHERS = {"python": (), "torchrun": ("-m", "torch.distributed.run")}
LONGEST = 600
"""Seconds after which a run is given up."""
GIVEN_UP = 124
"""The status of a run that was given up, as `timeout` has it."""
PICTURE = ("test", "outcome", "measured", "source", "reads")
"""What is kept of each clue besides its places and its first step: enough to weigh again without running."""
MOST_PLACES = 6


class NotRun(ClewError):
    """Nothing is kept of this run, and it was asked not to run it."""


class Options(NamedTuple):
    """Where things are kept, whether exams are made and for how many seconds, and whether a result of another version
    of clew will do. `only_kept`: run nothing, raise NotRun where nothing is kept."""

    folder: str
    exams: bool = True
    budget: int = 20
    any_version: bool = False
    only_kept: bool = False


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:20]


def digest_of_tree(folder: str, skip: tuple[str, ...] = ()) -> str:
    """The digest of every file under a folder, by name and content; compiled files do not count."""
    total = hashlib.sha256()
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", *skip))
        for name in sorted(files):
            if not name.endswith(".pyc") and name not in skip:
                path = os.path.join(at, name)
                total.update(os.path.relpath(path, folder).encode())
                with open(path, "rb") as file:
                    total.update(hashlib.sha256(file.read()).digest())
    return total.hexdigest()[:20]


def clew_digest() -> str:
    """Of clew's own source, without the casebook and what was measured with it: neither a new fault nor a new table may
    make old results stale, since clues are weighed anew whenever they are counted."""
    return digest_of_tree(os.path.dirname(clew.__file__), skip=("casebook", MEASURED))


def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CLEW")}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def prepared(program: Program, options: Options) -> str:
    """A copy of the program with its data made, made once for each state of its sources."""
    source = os.path.join(PROGRAMS, program.name)
    made = os.path.join(options.folder, "programs", f"{program.name}-{digest_of_tree(source)}")
    if not os.path.isdir(made):
        part = f"{made}.part-{os.getpid()}"
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(source, part, ignore=shutil.ignore_patterns("__pycache__"))
        if os.path.exists(os.path.join(part, "make_data.py")):
            done = subprocess.run(
                [sys.executable, "make_data.py"], cwd=part, env=environment(), capture_output=True, text=True
            )
            if done.returncode:
                raise ClewError(f"the data of {program.name} could not be created: {done.stderr.strip()[-200:]}")
        os.replace(part, made)
    return made


def kept(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
            return found
    except (OSError, ValueError):
        return None


def keep(path: str, table: dict[str, Any]) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.part-{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(table, file)
    os.replace(part, path)


def key_of(item: Fault, made: str, seed: int) -> str:
    """What decides a bare run: the program with its data, the fault, the seed."""
    spoiled = inspect.getsource(SPOILERS[item.spoil]) if item.spoil in SPOILERS else ""
    change = (item.file, item.find, item.replace, item.spoil, item.arguments)
    return digest(os.path.basename(made), change, spoiled, seed)


def workplace(item: Fault, made: str, options: Options, name: str) -> str:
    """A copy of the program with the fault in it."""
    folder = os.path.join(options.folder, "work", f"{name}-{os.getpid()}", item.program)
    shutil.rmtree(os.path.dirname(folder), ignore_errors=True)
    shutil.copytree(made, folder)
    mutate(item, folder)
    return folder


def words_of(program: Program, seed: int) -> tuple[str, list[str]]:
    """The launcher's own words, and those of the script."""
    first, *rest = (word.replace("{seed}", str(seed)) for word in program.command)
    return first, rest


def figure_of(program: Program, out: str) -> float | None:
    said = re.findall(rf"^final {re.escape(program.metric)}=(-?[\d.]+|-?inf|nan)$", out, re.MULTILINE)
    return float(said[-1]) if said else None


def bare(item: Fault, program: Program, seed: int, options: Options) -> dict[str, Any]:
    """Run it without clew: status, figure, seconds, the end of what it printed."""
    made = prepared(program, options)
    key = key_of(item, made, seed)
    path = os.path.join(options.folder, "bare", f"{key}.json")
    if (known := kept(path)) is not None:
        return known
    if options.only_kept:
        raise NotRun(f"{item.id} with seed {seed} has not been run yet.")
    folder = workplace(item, made, options, f"bare-{key}")
    first, rest = words_of(program, seed)
    began = time.monotonic()
    done = _run([sys.executable, *LAUNCHERS[first], *rest], folder, environment())
    result = {
        "id": item.id,
        "seed": seed,
        "status": done.returncode,
        "figure": figure_of(program, done.stdout),
        "seconds": time.monotonic() - began,
        "tail": (done.stdout[-600:] + done.stderr[-600:]) if done.returncode else done.stdout[-300:],
    }
    # A run that was killed or given up says nothing about the program.
    if 0 <= done.returncode != GIVEN_UP:
        keep(path, result)
    shutil.rmtree(os.path.dirname(folder), ignore_errors=True)
    return result


def observed(item: Fault, program: Program, seed: int, options: Options, version: str) -> dict[str, Any]:
    """Run it under clew, and keep what it says."""
    made = prepared(program, options)
    how = "exams" if options.exams else "watched"
    key = key_of(item, made, seed)
    place = os.path.join(options.folder, "clew")
    path = os.path.join(place, f"{key}-{how}-{version}.json")
    if (known := kept(path)) is not None:
        return known
    if options.any_version and (older := _newest(place, f"{key}-{how}-")) is not None:
        return older
    if options.only_kept:
        raise NotRun(f"{item.id} with seed {seed} has not been run under clew yet.")
    folder = workplace(item, made, options, f"clew-{key}-{how}")
    home = os.path.dirname(folder)
    answer = os.path.join(home, "answer.json")
    own = ["--quiet", "--json", answer, "--domain", program.domain]
    own += ["--budget", f"{options.budget}s"] if options.exams else ["--no-exams"]
    first, rest = words_of(program, seed)
    if first != "python":
        rest = ["--", sys.executable, *LAUNCHERS[first], *rest]
    began = time.monotonic()
    # -P: the folder of the program must not be searched for the modules that clew itself imports.
    command = [sys.executable, "-P", "-m", "clew", "run", *own, *rest]
    own_home = os.path.join(home, "home")
    with FirstSteps(own_home) as first_steps:
        done = _run(command, folder, {**environment(), "CLEW_HOME": own_home})
    result = picture(kept(answer), done, time.monotonic() - began, first_steps)
    result |= {"id": item.id, "seed": seed, "version": version, "how": how}
    result["domain"] = domain_of(own_home, program.domain)
    if 0 <= done.returncode != GIVEN_UP and "error" not in result:
        keep(path, result)
    shutil.rmtree(home, ignore_errors=True)
    return result


def picture(
    answer: dict[str, Any] | None, done: "subprocess.CompletedProcess[str]", seconds: float, first: FirstSteps
) -> dict[str, Any]:
    """What is kept of clew's answer."""
    if answer is None:
        return {"verdict": "", "error": done.stderr[-600:], "seconds": seconds, "causes": [], "clues": []}
    fields = ("id", "credence", "kind", "where", "clues", "says")
    exams = answer.get("exams", {})
    return {
        "verdict": answer["verdict"],
        "unknown": answer["unknown"],
        "causes": [{field: cause.get(field) for field in fields} for cause in answer["causes"][:12]],
        "clues": [clue_kept(clue, answer["run"]["steps"], first) for clue in answer["clues"]],
        "places": places_kept(answer),
        "files": [entry["path"] for entry in answer["run"].get("files", [])],
        "steps": answer["run"]["steps"],
        "run_seconds": answer["run"]["seconds"],
        "exams": exams.get("made", 0),
        "exams_ended": exams.get("ended", ""),
        "exams_notes": [note[:120] for note in exams.get("notes", [])[:3]],
        "exams_skipped": [[entry["exam"], entry["why"][:80]] for entry in exams.get("skipped", [])],
        "exit": answer["run"]["exit"],
        "seconds": seconds,
    }


def clue_kept(clue: dict[str, Any], steps: int, first: FirstSteps) -> dict[str, Any]:
    table = {field: clue.get(field) for field in PICTURE}
    table["where"] = clue.get("where", [])[:MOST_PLACES]
    table["step"] = first.of(clue["test"], clue["outcome"], steps)
    if clue.get("why"):
        table["why"] = clue["why"][:120]
    return table


def places_kept(answer: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """By cause, the places that no clue holds, such as the line of a setting."""
    told = [place for clue in answer["clues"] for place in clue.get("where", [])]
    found = {cause["id"]: [place for place in cause["where"] if place not in told] for cause in answer["causes"]}
    return {name: places for name, places in found.items() if places}


def domain_of(home: str, said: str) -> str:
    """The kind of subject that the run showed itself to be, as clew took it."""
    for name in sorted(os.listdir(runs)) if os.path.isdir(runs := os.path.join(home, "runs")) else []:
        parts = processes(os.path.join(runs, name)) if os.path.isdir(os.path.join(runs, name)) else []
        if parts:
            return domain_seen(parts[0].series, said)
    return said


def _newest(folder: str, start: str) -> dict[str, Any] | None:
    try:
        names = [os.path.join(folder, name) for name in os.listdir(folder) if name.startswith(start)]
    except OSError:
        return None
    return kept(max(names, key=os.path.getmtime)) if names else None


def _run(command: list[str], folder: str, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, errors="replace", timeout=LONGEST
        )
    except subprocess.TimeoutExpired as late:
        out = (late.stdout or b"").decode(errors="replace")
        return subprocess.CompletedProcess(command, GIVEN_UP, out, f"given up after {LONGEST} s")
