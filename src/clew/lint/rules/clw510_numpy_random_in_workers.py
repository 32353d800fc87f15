"""Loader workers draw the same random numbers.

What it sees: in a data set that a DataLoader with several workers reads, a generator of numpy, random or torch made
once, in __init__ or on import, and drawn from where examples are made; for a look, the same in a transform, and
numpy's global generator.
Why it matters: every worker gets a copy of the generator in the same state, so all workers produce the same crops and
flips, and with workers restarted per epoch every epoch repeats them. The global generator is seeded per worker since
PyTorch 1.9; before that it has the same fault.
Silent when: worker_init_fn is given, workers are zero, or the data set draws from torch or from the random module,
which are seeded per worker.
Fix: draw from torch, or make the generator in worker_init_fn.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import loaders
from clew.lint.index import Class, Scope
from clew.lint.registry import rule
from clew.lint.script import Hit, Script


@rule(
    "CLW510", "numpy-random-in-workers", "data.worker_rng", "likely", "random default_rng RandomState Random Generator"
)
def check(script: Script) -> Iterator[Hit]:
    seeds = any(word.arg == "worker_init_fn" for call in script.calls("DataLoader") for word in call.keywords)
    if seeds or any(script.calls("get_worker_info", "seed_everything")):
        return
    made = list(loaders(script))
    parallel = any(works(script, call) for call, _ in made)
    if made and not parallel:
        return
    for cls in script.module.classes:
        if parallel and "__call__" in cls.methods and not is_dataset(script, cls):
            held = next(
                (
                    one
                    for one in cls.methods["__call__"].calls
                    if isinstance(one.func, ast.Attribute) and made_before(script, one.func.value)
                ),
                None,
            )
            if held is not None:
                yield Hit(held, "every data-loader worker gets a copy of this generator in the same state.", "look")
            continue
        own, shared = draws(script, cls)
        if (own is None and shared is None) or not is_dataset(script, cls) or (not made and read_alone(script, cls)):
            continue
        if own is not None:
            yield Hit(
                own,
                "every worker gets a copy of this generator in the same state: all draw the same numbers.",
                "likely" if parallel else "look",
            )
        elif shared is not None and parallel:
            yield Hit(
                shared,
                "before PyTorch 1.9 all workers draw the same numbers here; torch's own generator is always safe.",
                "look",
            )


def works(script: Script, call: ast.Call) -> bool:
    given = script.arg(call, 5, "num_workers")
    return given is not None and script.constant(given, 1) != 0 and script.arg(call, -1, "worker_init_fn") is None


def read_alone(script: Script, cls: Class) -> bool:
    """Whether the files that use the data set read it without workers."""
    homes = {script.at_home(where) for _, where in script.project.makers(cls)}
    calls = [(home, call) for home in homes for call, _ in loaders(home)]
    return bool(calls) and not any(works(home, call) for home, call in calls)


def is_dataset(script: Script, cls: Class) -> bool:
    names = ("Dataset", "IterableDataset", "ImageFolder", "VisionDataset")
    return any(base.rsplit(".", 1)[-1] in names for base in script.values.bases(cls))


def draws(script: Script, cls: Class) -> tuple[ast.Call | None, ast.Call | None]:
    """The first draw, where examples are made, from a generator made earlier, and from numpy's global one."""
    own: ast.Call | None = None
    shared: ast.Call | None = None
    queue = [cls.methods.get("__getitem__"), cls.methods.get("__iter__")]
    seen: set[Scope] = set()
    while queue:
        method = queue.pop()
        if method is None or method in seen or method.module is not script.module:
            continue
        seen.add(method)
        for call in sorted(method.calls, key=lambda one: (one.lineno, one.col_offset)):
            func = call.func
            if isinstance(func, ast.Name):
                queue += [value.func for value in script.value(func) if value.kind == "function"]
            if not isinstance(func, ast.Attribute):
                continue
            dotted = script.dotted(func)
            handed = script.arg(call, -1, "generator")
            if handed is not None and made_before(script, handed):
                own = own or call
            elif dotted.startswith("numpy.random.") and dotted.count(".") == 2:
                if dotted.rsplit(".", 1)[-1] not in ("default_rng", "RandomState", "seed", "Generator"):
                    shared = shared or call
            elif made_before(script, func.value):
                own = own or call
            elif isinstance(func.value, ast.Name) and func.value.id == method.me:
                queue.append(cls.methods.get(func.attr))
    return own, shared


def made_before(script: Script, node: ast.expr) -> bool:
    """A numpy generator kept on self or made on import."""
    if not isinstance(node, ast.Attribute | ast.Name):
        return False
    # torch.Generator().manual_seed(0) gives back the generator.
    values = [value.owner if value.name == "manual_seed" and value.owner else value for value in script.value(node)]
    return all(
        value.name in GENERATORS
        and value.where is not None
        and (value.where.block.scope.kind == "module" or value.where.block.scope.name == "__init__")
        for value in values
    )


GENERATORS = (
    "numpy.random.default_rng",
    "numpy.random.RandomState",
    "numpy.random.Generator",
    "random.Random",
    "torch.Generator",
)
