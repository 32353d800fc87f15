"""Whether the code of a data set hands one random state to all workers: read from its code, never run."""

from __future__ import annotations

import dis
import random
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch

GENERATORS = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)
TELLS = {"initial_seed", "get_worker_info", "getpid", "time", "time_ns", "urandom", "get_state", "getstate", "randint"}


def kept_generator(dataset: Any) -> str:
    """A sentence when the data set, or a transform of it, draws from a generator that every worker gets a copy of."""
    for owner, methods in _owners(dataset):
        for name, held in getattr(owner, "__dict__", {}).items():
            if isinstance(held, GENERATORS) and _draws(type(owner), methods, name):
                kind = f"{type(held).__module__.split('.')[0]} {type(held).__name__}"
                return (
                    f"{type(owner).__name__}.{name} is a {kind} created before the workers start: each worker "
                    "gets a copy in the same state"
                )
    return ""


def _owners(dataset: Any) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Whatever runs in a worker, and the methods that run there."""
    for _ in range(4):
        if dataset is None:
            return
        yield dataset, ("__getitem__", "__iter__", "__getitems__")
        for held in getattr(dataset, "__dict__", {}).values():
            if callable(held) and not isinstance(held, type | FunctionType):
                yield held, ("__call__", "forward")
        dataset = getattr(dataset, "__dict__", {}).get("dataset")


def _draws(kind: type, methods: tuple[str, ...], name: str) -> bool:
    """Whether one of the methods, or a method it calls on the way, reads the attribute and none replaces it."""
    waiting, seen, reads = list(methods), set(), False
    while waiting:
        method = waiting.pop()
        function = getattr(kind, method, None)
        code = getattr(function, "__code__", None)
        if method in seen or code is None:
            continue
        seen.add(method)
        for inner in _codes(code):
            for step in dis.get_instructions(inner):
                if step.argval == name and step.opname == "STORE_ATTR":
                    return False
                reads |= step.argval == name and step.opname.startswith("LOAD_")
            waiting += [held for held in inner.co_names if held not in seen and not held.startswith("__")]
    return reads


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for held in code.co_consts:
        if isinstance(held, CodeType):
            yield from _codes(held)


def fixed_seed(setup: Any) -> str:
    """A sentence when a worker_init_fn seeds without regard to the worker."""
    code = getattr(setup, "__code__", None)
    if code is None or code.co_argcount < 1:
        return ""
    names = {name for inner in _codes(code) for name in inner.co_names}
    first = code.co_varnames[0]
    used = any(
        step.argval == first or (isinstance(step.argval, tuple) and first in step.argval)
        for inner in _codes(code)
        for step in dis.get_instructions(inner)
        if step.opname.startswith("LOAD_") and "CONST" not in step.opname
    )
    if used or names & TELLS or not any("seed" in name for name in names) or code.co_freevars:
        return ""
    name = getattr(setup, "__name__", "worker_init_fn")
    return f"{name} gives every worker the same seed: it does not use the worker's id"
