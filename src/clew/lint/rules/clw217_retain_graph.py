"""The graph is kept although backward runs once.

What it sees: backward(retain_graph=True) in a function where no other backward could use the graph again.
Why it matters: memory for the activations is held longer than needed. More often it was added to silence an error
about a second backward, and the real fault, a hidden state or a loss that reaches into earlier steps, is still there.
Silent when: the function calls backward or autograd.grad again, or create_graph is set.
Fix: drop it, and detach what is carried from step to step.
"""

from collections.abc import Iterator

from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script


@rule("CLW217", "retain-graph", "train.graph_retained", "look", "retain_graph")
def check(script: Script) -> Iterator[Hit]:
    for call in script.calls("backward"):
        given = script.arg(call, -1, "retain_graph")
        if given is None or script.constant(given) is not True or script.arg(call, -1, "create_graph") is not None:
            continue
        scope = script.scope(call)
        others = [
            other
            for other in script.calls("backward", "grad", "manual_backward")
            if script.scope(other) is scope and other is not call
        ]
        if not others and len(call.keywords) + len(call.args) == 1:
            fix = Fix("free the graph", False, (script.replace(call, f"{script.source(call.func)}()"),))
            yield Hit(call, "keeps the graph, and nothing in this function backpropagates through it again.", fix=fix)
