"""How far the sources of an evidence map carry its claims.

The rule, in the order it is applied. Every value is computed exactly from the decimal figures, then rounded once to
a float, so neither the order of premises nor that of blocks can change a result.

1. A statement with `credence` in its metadata speaks with that credence. It belongs to a *lineage*: its metadata
   `lineage`, else the first word of the label of its first link to something that is not a local file, else the
   statement alone.
2. Voices that speak for the same thing are *joined*: `min(a, b)`. `a` is the noisy-or, 1 - prod(1 - p), of the voices,
   where of those resting on exactly the same lineages the strongest speaks. `b` is the noisy-or over lineages of the
   strongest strength that the lineage has in any voice. An author who argues ten times thus counts once.
3. A step of an argument is worth `inference` x (witnesses joined) x (product of needed premises). Premises tagged
   #observation are witnesses, all others are needed. A conclusion follows from the conclusion before it, if there is
   one, and the premises since. `inference` stands in the metadata of the conclusion or argument; missing, it is 1.
4. A statement's support is the join of its own credence, the arguments that conclude it and what supports it.
   Supporting a statement by `+ <A>` and by `+>` under the conclusion of A is one edge, and carries the credence of
   that conclusion. Attacks are joined likewise. Its credence is `support x (1 - attack / 2)`.
5. An attack on an argument denies the step, not the claim: the argument is worth `value x (1 - attack)`.
   Support given to an argument directly is joined with what its own steps give.
6. A lineage carries through a step its strength times all else that the step multiplies in. Needed premises carry
   lineages only in a step without witnesses, and an unattributed one only if no other needed premise is attributed.
7. What is not stated stays not stated (None): a leaf without credence, a step that needs such a leaf, a step none of
   whose witnesses is stated. Elsewhere the stated voices speak and the silent ones are listed.

Why `support x (1 - attack / 2)`: it is the credence over the worlds of the noisy-or if a world with support alone
counts 1, one with both support and attack counts 1/2, and one without support counts 0. It equals DF-QuAD (Rago et al.
2016) with base 1/2 wherever support or attack is 1, equals the support where nothing attacks, and gives an unsupported
claim nothing. On the folklore map (support above 0.999, attack 1 - 0.74 x 0.76 = 0.44) it gives 0.78, where
`v(1 - a)` would give 0.56, more than two limited objections deserve, and `v(1 - a(1 - v))` would give 1.00, as if
nobody had objected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from clew.errors import ClewError
from clew.evidence.model import Argument, Document, Link, Map, Relation, Statement, Step

if TYPE_CHECKING:
    from fractions import Fraction


ROLES = ("own", "witness", "needed", "steps", "concluded", "support", "attack")


class Node(NamedTuple):
    """A thing that has a credence. A "step" is an inference inside an argument, before its last."""

    kind: str  # "statement" | "argument" | "step"
    title: str

    def __str__(self) -> str:
        return f"[{self.title}]" if self.kind == "statement" else f"<{self.title}>"


class Part(NamedTuple):
    """One voice behind a credence. `counts` is False when its lineages already speak at least as loudly."""

    role: str  # one of ROLES; "steps" is what an argument's premises give where something else bears on it too
    node: Node
    credence: float | None
    lineages: tuple[tuple[str, float], ...] = ()
    counts: bool = True


class Belief(NamedTuple):
    """A credence and its reason.

    A statement's is `support x (1 - attack / 2)`, an argument's `inference x needed x support`, where `support` is 1
    for a step without witnesses. An argument on which other things bear has a part "steps" with that value, and is
    `support x (1 - attack)`.
    """

    credence: float | None
    parts: tuple[Part, ...] = ()
    support: float | None = None
    attack: float = 0.0
    needed: float = 1.0
    inference: float = 1.0
    lineages: tuple[tuple[str, float], ...] = ()

    @property
    def unstated(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.credence is None)


class Credences(NamedTuple):
    statements: dict[str, Belief]
    arguments: dict[str, Belief]
    steps: dict[str, Belief]

    def of(self, node: Node) -> Belief:
        table = {"statement": self.statements, "argument": self.arguments, "step": self.steps}
        return table[node.kind][node.title]


class Graph(NamedTuple):
    """A document with every title met once and every edge written once."""

    statements: dict[str, tuple[Statement, ...]]
    arguments: dict[str, tuple[Argument, ...]]
    premises: dict[Node, tuple[Node, ...]]
    inference: dict[Node, float]
    concludes: dict[Node, Node]
    concluders: dict[Node, tuple[Node, ...]]
    supports: dict[Node, tuple[Node, ...]]
    attacks: dict[Node, tuple[Node, ...]]

    def nodes(self) -> list[Node]:
        steps = [node for node in self.premises if node.kind == "step"]
        return [
            *(Node("statement", title) for title in self.statements),
            *(Node("argument", title) for title in self.arguments),
            *steps,
        ]

    def below(self, node: Node) -> tuple[Node, ...]:
        """What the credence of a node is made from."""
        tables = (self.premises, self.concluders, self.supports, self.attacks)
        return tuple(other for table in tables for other in table.get(node, ()))

    def line(self, node: Node) -> int:
        return min((item.line for item in self.said(node) if item.line), default=0)

    def said(self, node: Node) -> tuple[Statement | Argument, ...]:
        """Every place that speaks of this title."""
        if node.kind == "statement":
            return self.statements[node.title]
        return self.arguments[node.title] if node.kind == "argument" else ()

    def is_observation(self, title: str) -> bool:
        return any("observation" in statement.tags for statement in self.statements[title])


def propagate(document: Document) -> Credences:
    """The credence of every statement and argument, each with the contributions that made it."""
    graph = connect(document)
    own = {node: _own(document, graph, node) for node in graph.nodes()}
    made: dict[Node, Belief] = {}
    for node in _ordered(document, graph):
        made[node] = (_statement if node.kind == "statement" else _argument)(graph, node, own[node], made)
    statements, arguments, steps = (
        {node.title: made[node] for node in graph.nodes() if node.kind == kind}
        for kind in ("statement", "argument", "step")
    )
    return Credences(statements, arguments, steps)


# Reading the document as a graph


def connect(document: Document) -> Graph:
    """Gather what is said about each title and make every relation an edge from source to target."""
    graph = Graph({}, {}, {}, {}, {}, {}, {}, {})
    edges: list[tuple[Node, Relation]] = []
    for block in document.blocks:
        if isinstance(block, Statement):
            node = _add(graph, block, f"line {block.line}")
            edges += [(node, relation) for relation in block.relations]
        elif isinstance(block, Argument):
            graph.arguments[block.title] = (*graph.arguments.get(block.title, ()), block)
            edges += [(Node("argument", block.title), relation) for relation in block.relations]
            edges += _steps(document, graph, block)
    for node, relation in edges:
        _relate(graph, node, relation)
    _strengths(document, graph)
    return graph


def _add(graph: Graph, statement: Statement, otherwise: str) -> Node:
    title = statement.title or otherwise
    graph.statements[title] = (*graph.statements.get(title, ()), statement)
    return Node("statement", title)


def _steps(document: Document, graph: Graph, argument: Argument) -> list[tuple[Node, Relation]]:
    if not argument.steps:
        return []
    whole = Node("argument", argument.title)
    if whole in graph.premises:
        raise ClewError(
            f"{_place(document, argument.line)}: <{argument.title}> is spelled out a second time; "
            "give the two arguments different titles"
        )
    edges: list[tuple[Node, Relation]] = []
    pending: list[Node] = []
    last = max((index for index, step in enumerate(argument.steps) if step.conclusion), default=-1)
    for index, step in enumerate(argument.steps):
        node = _add(graph, step.statement, f"{argument.title} ({step.number})")
        edges += [(node, relation) for relation in step.statement.relations]
        if step.conclusion:
            maker = whole if index == last else Node("step", f"{argument.title} ({step.number})")
            graph.premises[maker] = tuple(dict.fromkeys(pending))
            strength = _fraction(document, step.statement.data, "inference", _named(step), step.line)
            if strength is not None:
                graph.inference[maker] = strength
            graph.concludes[maker] = node
            _append(graph.concluders, node, maker)
            pending = []
        pending.append(node)
    if last < 0:
        graph.premises[whole] = tuple(dict.fromkeys(pending))
    return edges


def _strengths(document: Document, graph: Graph) -> None:
    """Fill in the strength of a step that is stated with the argument, or where the conclusion stands on its own."""
    alone: dict[Node, list[Statement]] = {}
    for block in document.blocks:
        if isinstance(block, Statement):
            alone.setdefault(Node("statement", block.title), []).append(block)
    for node in graph.nodes():
        if node.kind == "statement" or node in graph.inference:
            continue
        strength = _stated(document, node, graph.said(node), "inference")
        conclusion = graph.concludes.get(node)
        if strength is None and conclusion is not None:
            strength = _stated(document, conclusion, alone.get(conclusion, []), "inference")
        if strength is not None:
            graph.inference[node] = strength


def _named(step: Step) -> str:
    return f"[{step.statement.title}]" if step.statement.title else f"({step.number})"


def _relate(graph: Graph, node: Node, relation: Relation) -> None:
    other = Node(relation.target_kind, relation.target)
    if other.kind == "statement":
        graph.statements.setdefault(other.title, ())
    else:
        graph.arguments.setdefault(other.title, ())
    source, target = (other, node) if relation.direction == "in" else (node, other)
    concluded = graph.concludes.get(source)
    if concluded is not None and concluded == target and relation.kind == "support":
        return
    # What an argument says is its conclusion, so an edge from either is the same edge.
    _append(graph.supports if relation.kind == "support" else graph.attacks, target, concluded or source)


def _append(table: dict[Node, tuple[Node, ...]], key: Node, node: Node) -> None:
    present = table.get(key, ())
    if node not in present:
        table[key] = (*present, node)


def _place(document: Document, line: int) -> str:
    return f"{document.name}:{line}" if document.name else f"line {line}"


def _ordered(document: Document, graph: Graph) -> list[Node]:
    """Every node after all it is made from."""
    order: list[Node] = []
    done: set[Node] = set()
    for start in graph.nodes():
        path: dict[Node, list[Node]] = {} if start in done else {start: list(graph.below(start))}
        while path:
            node, waiting = next(reversed(path.items()))
            if not waiting:
                del path[node]
                done.add(node)
                order.append(node)
                continue
            below = waiting.pop()
            if below in path:
                members = list(path)
                raise _circle(document, graph, members[members.index(below) :])
            if below not in done:
                path[below] = list(graph.below(below))
    return order


def _circle(document: Document, graph: Graph, members: list[Node]) -> ClewError:
    first, *others = (node for node in members if node.kind != "step")
    named = ", ".join(f"{node} (line {graph.line(node)})" for node in others)
    way = f", by way of {named}" if named else ""
    return ClewError(
        f"{_place(document, graph.line(first))}: {first} rests on itself{way}; take out one of these relations"
    )


# What a statement says of itself


class _Own(NamedTuple):
    credence: float
    lineage: str


def _own(document: Document, graph: Graph, node: Node) -> _Own | None:
    credence = _stated(document, node, graph.said(node), "credence")
    return None if credence is None else _Own(credence, lineage(graph.said(node), str(node)))


def _stated(document: Document, node: Node, said: Iterable[Statement | Argument], name: str) -> float | None:
    stated: dict[float, int] = {}
    for item in said:
        value = _fraction(document, item.data, name, str(node), item.line)
        if value is not None:
            stated.setdefault(value, item.line)
    if len(stated) > 1:
        shown = " and ".join(f"{value} (line {line})" for value, line in stated.items())
        raise ClewError(f"{_place(document, max(stated.values()))}: {node} has the {name} {shown}; state one")
    return next(iter(stated), None)


def _fraction(document: Document, data: Map, name: str, node: str, line: int) -> float | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        shown = f'"{value}"' if isinstance(value, str) else str(value)
        raise ClewError(
            f"{_place(document, line)}: {node} has {name} {shown}; write a number from 0 to 1, without quotation marks"
        )
    return float(value)


def lineage(said: Iterable[Statement | Argument], otherwise: str) -> str:
    """Whose voice this is. Where several places name different ones, the alphabetically first, whatever their order."""
    said = tuple(said)
    named = {str(item.data.get("lineage")).strip().lower() for item in said if item.data.get("lineage") is not None}
    named = named or {name for item in said if (name := _first_author(item.links))}
    return min(named, default=otherwise)


def is_local(target: str) -> bool:
    """Whether a link names a file beside the map: no scheme stands before its first slash."""
    return ":" not in target.split("#")[0].split("/")[0]


def _first_author(links: tuple[Link, ...]) -> str:
    for link in links:
        words = link.label.split()
        if words and not is_local(link.target):
            return words[0].strip(".,:;'\"()[]<>").lower() or words[0].lower()
    return ""


# Joining voices


class _Sum(NamedTuple):
    value: Fraction
    lineages: dict[str, Fraction]
    heard: set[tuple[str, Node]]


def _exact(value: float) -> Fraction:
    """The decimal figure as written: 0.9 is nine tenths, so that 0.9 x 0.9 comes out as 0.81."""
    from fractions import Fraction

    return Fraction(repr(value))


def _noisy_or(values: Iterable[Fraction]) -> Fraction:
    from fractions import Fraction

    silent = Fraction(1)
    for value in values:
        silent *= 1 - value
    return 1 - silent


def _join(voices: Iterable[Part]) -> _Sum | None:
    groups: dict[tuple[str, ...], Part] = {}
    loudest: dict[str, tuple[float, Part]] = {}
    for voice in sorted((voice for voice in voices if voice.credence is not None), key=lambda voice: voice.node):
        key = tuple(name for name, _ in voice.lineages)
        if key not in groups or _value(voice) > _value(groups[key]):
            groups[key] = voice
        for name, strength in voice.lineages:
            if name not in loudest or strength > loudest[name][0]:
                loudest[name] = (strength, voice)
    if not groups:
        return None
    by_voice = _noisy_or(_exact(_value(voice)) for voice in groups.values())
    lineages = {name: _exact(strength) for name, (strength, _) in loudest.items()}
    by_lineage = _noisy_or(lineages.values())
    heard = {(voice.role, voice.node) for voice in groups.values()}
    if by_lineage < by_voice:
        heard &= {(voice.role, voice.node) for _, voice in loudest.values()}
    return _Sum(min(by_voice, by_lineage), lineages, heard)


def _value(voice: Part) -> float:
    return 0.0 if voice.credence is None else voice.credence


def _voices(role: str, nodes: Iterable[Node], made: dict[Node, Belief]) -> list[Part]:
    return [Part(role, node, made[node].credence, made[node].lineages) for node in nodes]


def _own_voice(node: Node, own: _Own | None) -> list[Part]:
    return [] if own is None else [Part("own", node, own.credence, ((own.lineage, own.credence),))]


def _marked(parts: list[Part], joined: _Sum | None) -> list[Part]:
    heard = joined.heard if joined else set()
    return [part._replace(counts=(part.role, part.node) in heard) for part in parts]


def _sorted(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Strongest first, so that the reason for a credence does not depend on the order of the file either."""
    return tuple(sorted(parts, key=lambda p: (ROLES.index(p.role), p.credence is None, -_value(p), p.node)))


def _scaled(lineages: dict[str, Fraction], factor: Fraction) -> tuple[tuple[str, float], ...]:
    return tuple((name, float(lineages[name] * factor)) for name in sorted(lineages))


# The credence of one node


def _statement(graph: Graph, node: Node, own: _Own | None, made: dict[Node, Belief]) -> Belief:
    voices = [
        *_own_voice(node, own),
        *_voices("concluded", graph.concluders.get(node, ()), made),
        *_voices("support", graph.supports.get(node, ()), made),
    ]
    return _weighed(voices, _voices("attack", graph.attacks.get(node, ()), made), 1.0, 0.5)


def _argument(graph: Graph, node: Node, own: _Own | None, made: dict[Node, Belief]) -> Belief:
    direct = [*_own_voice(node, own), *_voices("support", graph.supports.get(node, ()), made)]
    against = _voices("attack", graph.attacks.get(node, ()), made)
    strength = graph.inference.get(node, 1.0)
    if not graph.premises.get(node):
        return _weighed(direct, against, strength, 1.0)
    step = _step(graph, node, strength, made)
    if not direct and not against:
        return step
    belief = _weighed([Part("steps", node, step.credence, step.lineages), *direct], against, 1.0, 1.0)
    parts = _sorted([*step.parts, *belief.parts])
    return belief._replace(parts=parts, needed=step.needed, inference=strength)


def _weighed(voices: list[Part], against: list[Part], strength: float, share: float) -> Belief:
    """What speaks for a thing, less what speaks against it; `share` is how much of it a certain attack takes."""
    support, attack = _join(voices), _join(against)
    parts = _sorted([*_marked(voices, support), *_marked(against, attack)])
    struck = float(attack.value) if attack else 0.0
    if support is None:
        return Belief(None, parts, None, struck, inference=strength)
    left = _exact(strength) * (1 - _exact(struck) * _exact(share))
    return Belief(
        float(support.value * left),
        parts,
        float(support.value),
        struck,
        inference=strength,
        lineages=_scaled(support.lineages, left),
    )


def _step(graph: Graph, node: Node, strength: float, made: dict[Node, Belief]) -> Belief:
    premises = graph.premises[node]
    witnesses = _voices("witness", [premise for premise in premises if graph.is_observation(premise.title)], made)
    needed = _voices("needed", [premise for premise in premises if not graph.is_observation(premise.title)], made)
    joined = _join(witnesses)
    parts = _sorted([*_marked(witnesses, joined), *needed])
    if any(part.credence is None for part in needed) or (witnesses and joined is None):
        return Belief(None, parts, inference=strength)
    product = _product(_exact(_value(part)) for part in needed)
    support = joined.value if joined else _exact(1.0)
    factor = _exact(strength) * product
    carried = _scaled(joined.lineages, factor) if joined else _carried(needed, _exact(strength))
    return Belief(
        float(support * factor), parts, float(support), needed=float(product), inference=strength, lineages=carried
    )


def _product(values: Iterable[Fraction]) -> Fraction:
    total = _exact(1.0)
    for value in values:
        total *= value
    return total


def _carried(needed: list[Part], strength: Fraction) -> tuple[tuple[str, float], ...]:
    """The lineages of a step that rests on needed premises alone."""
    attributed = [part for part in needed if any(not name.startswith(("[", "<")) for name, _ in part.lineages)]
    carried: dict[str, Fraction] = {}
    for part in attributed or needed:
        others = strength * _product(_exact(_value(other)) for other in needed if other is not part)
        for name, value in part.lineages:
            carried[name] = max(carried.get(name, _exact(0.0)), _exact(value) * others)
    return _scaled(carried, _exact(1.0))
