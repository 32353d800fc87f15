"""Do modules or parameters gather more and more hooks of one kind?

Counts, on sampled steps, the hooks on each module of the models and on each of their parameters, those of one function
together. Hooks that are there from the start, one for each layer, are no more later on.

Why it matters: every hook runs at every call. One that is registered again in every epoch or step and never removed
makes each step do a little more, and keeps what it refers to alive; the losses do not show it.
Cannot tell: hooks on activations, which go with the graph, and those that torch keeps for all modules together.
Silent when: hooks are removed before they are registered again; only a few came to be, or all at once.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from clew.observe.places import is_users, shown
from clew.observe.watch import Answer, OptimizerEvent, Watch, when_sampled
from clew.observe.watches.seeding import sources
from clew.records.clue import Saw, Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clew.observe.recorder import Recorder

KINDS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
LEAST, RISES = 5, 3
KEPT, MODULES = 512, 20_000
REGISTERS = re.compile(r"\.register(_full|_forward|_backward|_post_accumulate_grad)*(_pre)?_hook\(")

Key = tuple[int, str, Any]


class HooksGathered(Watch):
    test = "hooks_gathered"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.looks = 0
        self.most = 0
        self.known: dict[Key, tuple[int, int, int]] = {}  # hooks at first and now, and how often they had become more

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        del event
        self.looks += 1
        counts: Counter[Key] = Counter()
        for _, model in self.recorder.live_models():
            for number, module in enumerate(model.modules()):
                if number >= MODULES:
                    break
                for key in _hooks(module):
                    counts[key] += 1
        self.most = max(self.most, max(counts.values(), default=0))
        for key, (first, last, rises) in list(self.known.items()):
            now = counts.get(key, 0)
            if now < last:  # somebody removes them
                del self.known[key]
            elif now > last:
                self.known[key] = (first, now, rises + 1)
        for key, count in counts.items():
            if key not in self.known and len(self.known) < KEPT:
                self.known[key] = (count, count, 0)

    def read(self) -> Answer:
        if self.looks < RISES + 1:
            return Unclear(f"{self.looks} steps were sampled; {RISES + 1} are needed")
        grown = [(key, held) for key, held in self.known.items() if held[2] >= RISES and held[1] - held[0] >= LEAST]
        if not grown:
            return Saw("as_many", most=self.most)
        (_, kind, code), (first, now, _) = max(grown, key=lambda each: each[1][1])
        says = (
            f"one {kind} has {now} hooks of the same function and had {first} at the start: all of them run "
            "at every call"
        )
        return Saw("gathers", first=first, now=now, holders=len(grown)).saying(says).at(*lines(code))


def _hooks(module: Any) -> Iterator[Key]:
    for kind in KINDS:
        for hook in list((getattr(module, kind, None) or {}).values()):
            yield id(module), type(module).__name__, function_of(hook)
    for name, parameter in module._parameters.items():
        for kind in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            for hook in list((getattr(parameter, kind, None) or {}).values()):
                yield id(parameter), name, function_of(hook)


def function_of(hook: Any) -> Any:
    """What tells one kind of hook from another: the code that it runs. Closures of one function are of one kind."""
    hook = getattr(hook, "func", hook)  # of a partial
    hook = getattr(hook, "__func__", hook)
    return getattr(hook, "__code__", None) or type(hook)


def lines(code: Any) -> list[Place]:
    """Where the script registers hooks, those of the file that the hook itself is in first, and then the hook."""
    own = getattr(code, "co_filename", "")
    found = [
        (path != own, Place(shown(path), number, role="registered here"))
        for path, source in sources()
        for number, line in enumerate(source.split("\n"), 1)
        if REGISTERS.search(line.split("#", 1)[0])
    ]
    places = [place for _, place in sorted(found, key=lambda each: each[0])][:3]
    if own and is_users(own):
        places.append(Place(shown(own), code.co_firstlineno, symbol=code.co_qualname))
    return places
