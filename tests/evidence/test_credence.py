"""Credence propagation: figures reckoned by hand, worlds counted one by one, and what must hold for every map."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.errors import ClewError
from clew.evidence import argdown
from clew.evidence.credence import Credences, Node, connect, lineage, propagate
from clew.evidence.model import Argument, Document, Link, Map, Relation, Statement, Step
from clew.evidence.words import number, said, word

T = TypeVar("T")
FOLKLORE = Path(__file__).parents[3] / "shared" / "folklore" / "ml_debug_folklore.argdown"


def data(**values: object) -> Map:
    return Map(tuple((name, value) for name, value in values.items() if value is not None))


def witness(title: str, credence: float | None, line: str | None = None) -> Statement:
    return Statement(title, "Says so.", ("observation",), data=data(credence=credence, lineage=line))


def needed(title: str, credence: float | None, line: str | None = None) -> Statement:
    return Statement(title, "Holds.", ("assumption",), data=data(credence=credence, lineage=line))


def argue(
    title: str, *premises: Statement, to: str, inference: float | None = None, relations: tuple[Relation, ...] = ()
) -> Argument:
    steps = [Step(index, premise, False, index) for index, premise in enumerate(premises, 1)]
    last = Statement(to, "Hence.", data=data(inference=inference), relations=relations)
    return Argument(title, steps=(*steps, Step(len(steps) + 1, last, True, len(steps) + 1)))


def relation(sign: str, target: str) -> Relation:
    kind = "argument" if target.startswith("<") else "statement"
    direction = "out" if sign.endswith(">") else "in"
    return Relation("support" if sign[0] == "+" else "attack", direction, target[1:-1], kind)


def claim(title: str, *edges: tuple[str, str], credence: float | None = None) -> Statement:
    return Statement(title, "Claim.", data=data(credence=credence), relations=tuple(relation(*edge) for edge in edges))


def weigh(*blocks: Statement | Argument) -> Credences:
    return propagate(Document(blocks, name="map.argdown"))


# By hand


def test_independent_witnesses_join_by_noisy_or() -> None:
    made = weigh(
        argue("A", witness("p", 0.9, "x"), witness("q", 0.8, "y"), witness("r", 0.7, "z"), to="C", inference=0.9)
    )
    assert made.arguments["A"].credence == 0.8946  # 0.9 x (1 - 0.1 x 0.2 x 0.3)
    assert made.statements["C"].credence == 0.8946


def test_an_author_heard_twice_counts_once() -> None:
    made = weigh(
        argue("A", witness("p", 0.8, "x"), witness("q", 0.9, "y"), witness("r", 0.8, "x"), to="C", inference=0.85)
    )
    assert made.arguments["A"].credence == 0.833  # 0.85 x (1 - 0.2 x 0.1)
    assert [part.node.title for part in made.arguments["A"].parts if not part.counts] == ["r"]


def test_needed_premises_multiply() -> None:
    assert weigh(argue("A", needed("p", 0.5), needed("q", 0.8), to="C")).statements["C"].credence == 0.4


def test_needed_premises_multiply_with_joined_witnesses() -> None:
    premises = (witness("p", 0.5, "x"), needed("n", 0.8), witness("q", 0.5, "y"))
    assert weigh(argue("A", *premises, to="C", inference=0.9)).statements["C"].credence == 0.54  # 0.9 x 0.8 x 0.75


def test_an_intermediate_conclusion_chains() -> None:
    middle = Statement("I", data=data(inference=0.5))
    steps = (
        Step(1, witness("p", 0.8, "x")),
        Step(2, middle, True),
        Step(3, needed("n", 0.5)),
        Step(4, Statement("C", data=data(inference=0.9)), True),
    )
    made = weigh(Argument("A", steps=steps))
    assert made.statements["I"].credence == 0.4
    assert made.statements["C"].credence == 0.18  # 0.9 x 0.4 x 0.5
    assert made.steps["A (2)"].credence == 0.4


def test_the_same_edge_written_twice_counts_once() -> None:
    argument = argue("A", needed("p", 0.6), to="C", relations=(relation("+>", "[S]"),))
    once = weigh(claim("S"), argument)
    twice = weigh(claim("S", ("+", "<A>"), ("+", "[C]")), argument)
    assert once == twice
    assert once.statements["S"].credence == 0.6


def test_naming_the_argument_that_concludes_a_claim_as_its_support_adds_nothing() -> None:
    argument = argue("A", needed("p", 0.6), to="S")
    assert weigh(claim("S", ("+", "<A>")), argument) == weigh(claim("S"), argument)


def test_one_author_arguing_ten_times_carries_a_claim_no_further_than_once() -> None:
    arguments = [argue(f"A{i}", witness(f"p{i}", 0.8, "x"), to=f"C{i}", inference=0.9) for i in range(10)]
    made = weigh(claim("S", *(("+", f"<A{i}>") for i in range(10))), *arguments)
    assert made.statements["S"].credence == 0.72


def test_ten_fresh_assumptions_do_not_make_one_author_ten() -> None:
    arguments = [argue(f"A{i}", needed(f"p{i}", 0.8, "x"), needed(f"n{i}", 0.9), to=f"C{i}") for i in range(10)]
    assert weigh(claim("S", *(("+", f"<A{i}>") for i in range(10))), *arguments).statements["S"].credence == 0.72


def test_a_chain_keeps_the_strength_of_each_lineage() -> None:
    first = argue("A", witness("p", 0.5, "x"), witness("q", 0.5, "y"), to="C")
    second = argue("B", Statement("C"), to="D", inference=0.8)
    made = weigh(first, second, claim("S", ("+", "[D]"), ("+", "[E]")), argue("E", witness("r", 0.4, "x"), to="E"))
    assert made.statements["D"].lineages == (("x", 0.4), ("y", 0.4))
    # D alone is worth 0.6; the third witness has nothing to add that its lineage has not said through D.
    assert made.statements["S"].credence == 0.64  # 1 - 0.6 x 0.6: the bound by lineage
    assert [part.node.title for part in made.statements["S"].parts if not part.counts] == ["E"]


def test_a_repeated_source_beside_a_derived_witness_changes_nothing() -> None:
    derived = argue("A", needed("a", 0.6, "x"), needed("b", 0.6, "y"), to="D")  # 0.36
    premises = (Statement("D", tags=("observation",)), witness("p", 0.3, "x"))
    once = weigh(derived, argue("B", *premises, to="C"))
    twice = weigh(derived, argue("B", *premises, witness("again", 0.3, "x"), to="C"))
    assert once.statements["C"].credence == twice.statements["C"].credence == 0.552  # 1 - 0.64 x 0.7


def test_an_attack_takes_half_its_strength() -> None:
    made = weigh(claim("S", ("-", "[O]"), credence=0.8), claim("O", credence=0.5))
    assert made.statements["S"].credence == 0.6  # 0.8 x (1 - 0.5 / 2)


@pytest.mark.parametrize(("support", "attack"), [(1.0, 0.3), (1.0, 1.0), (0.6, 1.0), (0.0, 1.0)])
def test_the_discount_is_df_quad_with_base_one_half_where_either_side_is_certain(support: float, attack: float) -> None:
    made = weigh(claim("S", ("+", "[P]"), ("-", "[O]")), claim("P", credence=support), claim("O", credence=attack))
    assert made.statements["S"].credence == pytest.approx(0.5 + 0.5 * (support - attack), abs=1e-15)


def test_attacks_of_one_lineage_count_once() -> None:
    blocks = [claim("S", ("-", "[O]"), ("-", "[Q]"), credence=0.8), witness("O", 0.5, "x"), witness("Q", 0.5, "x")]
    assert weigh(*blocks).statements["S"].credence == 0.6


def test_an_attack_on_an_argument_takes_its_whole_strength() -> None:
    argument = argue("A", needed("p", 0.8), to="C")._replace(relations=(relation("-", "[O]"),))
    made = weigh(argument, claim("O", credence=0.25))
    assert made.arguments["A"].credence == 0.6
    assert made.statements["C"].credence == 0.6


def test_support_given_to_an_argument_joins_what_its_steps_give() -> None:
    argument = argue("A", needed("p", 0.5), to="C")._replace(relations=(relation("+", "[O]"),))
    assert weigh(argument, claim("O", credence=0.5)).statements["C"].credence == 0.75


def test_an_argument_without_steps_is_worth_what_supports_it() -> None:
    argument = Argument("A", "In short.", data=data(inference=0.5), relations=(relation("+", "[O]"),))
    assert weigh(argument, claim("O", credence=0.8), claim("S", ("+", "<A>"))).statements["S"].credence == 0.4


def test_a_stated_credence_is_one_voice_among_the_supports() -> None:
    made = weigh(claim("S", ("+", "[P]"), credence=0.5), claim("P", credence=0.5))
    assert made.statements["S"].credence == 0.75


def test_inference_may_stand_with_the_argument_or_with_the_statement_alone() -> None:
    bare = argue("A", needed("p", 0.8), to="C")
    assert weigh(bare._replace(data=data(inference=0.5))).statements["C"].credence == 0.4
    assert weigh(bare, Statement("C", "Hence.", data=data(inference=0.25))).statements["C"].credence == 0.2


# What is not stated


def test_a_leaf_without_credence_is_not_stated_and_neither_is_what_needs_it() -> None:
    made = weigh(argue("A", needed("p", None), needed("q", 0.8), to="C"))
    assert (made.statements["p"].credence, made.arguments["A"].credence, made.statements["C"].credence) == (None,) * 3
    assert [part.node.title for part in made.arguments["A"].unstated] == ["p"]


def test_a_convergent_argument_uses_the_witnesses_that_are_stated_and_names_the_others() -> None:
    made = weigh(argue("A", witness("p", None), witness("q", 0.8, "y"), to="C"))
    assert made.statements["C"].credence == 0.8
    assert [part.node.title for part in made.arguments["A"].unstated] == ["p"]


def test_an_attack_on_what_is_not_stated_leaves_it_not_stated() -> None:
    assert weigh(claim("S", ("-", "[O]")), claim("O", credence=0.5)).statements["S"].credence is None


def test_an_attacker_that_is_not_stated_takes_nothing() -> None:
    made = weigh(claim("S", ("-", "[O]"), credence=0.8), claim("O"))
    assert made.statements["S"].credence == 0.8
    assert [part.node.title for part in made.statements["S"].unstated] == ["O"]


def test_a_name_that_is_defined_nowhere_is_not_stated() -> None:
    made = weigh(claim("S", ("+", "<Nowhere>")))
    assert made.arguments["Nowhere"].credence is None
    assert made.statements["S"].credence is None


# Lineage


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ([("Schulman 2016 Slides", "http://x.org/a.pdf"), ("evidence", "evidence/a.md#L1")], "schulman"),
        ([("evidence", "evidence/a.md#L1"), ("Schulman 2017 Bootcamp Talk", "https://x.org/b")], "schulman"),
        ([("Bengio, Y.", "doi:10.1000/1")], "bengio"),
        ([("evidence", "evidence/a.md#L1-L2")], "[p]"),
        ([], "[p]"),
    ],
)
def test_lineage_is_the_first_word_of_the_first_link_that_leads_out(
    links: list[tuple[str, str]], expected: str
) -> None:
    statement = Statement("p", links=tuple(Link(*link) for link in links), data=data(credence=0.5))
    assert lineage([statement], "[p]") == expected
    assert weigh(statement).statements["p"].lineages == ((expected, 0.5),)


def test_a_lineage_in_the_metadata_overrides_the_links() -> None:
    statement = Statement("p", links=(Link("Jones", "https://x.org"),), data=data(credence=0.5, lineage="Schulman"))
    assert lineage([statement], "[p]") == "schulman"


# Errors


@pytest.mark.parametrize("bad", [1.01, -0.1, math.nan, math.inf, "0.9", True, (0.5,), 10**400])
@pytest.mark.parametrize("name", ["credence", "inference"])
def test_a_credence_that_is_no_share_is_refused_with_its_place(bad: object, name: str) -> None:
    steps = (Step(1, needed("p", 0.5)), Step(2, Statement("C", data=Map(((name, bad),)), line=7), True, 7))
    with pytest.raises(ClewError, match=rf"^map\.argdown:7: \[C\] has {name} .*; write a number from 0 to 1"):
        weigh(Argument("A", steps=steps))


def test_two_credences_for_one_statement_are_refused() -> None:
    first, second = (Statement("S", data=data(credence=c), line=n) for c, n in ((0.5, 3), (0.6, 9)))
    with pytest.raises(ClewError, match=r"map\.argdown:9: \[S\] has the credence 0\.5 \(line 3\) and 0\.6 \(line 9\)"):
        weigh(first, second)


def test_a_circle_is_refused_and_names_its_members() -> None:
    first = claim("S", ("+", "[T]"))._replace(line=3)
    second = claim("T", ("-", "[S]"))._replace(line=8)
    with pytest.raises(ClewError, match=r"map\.argdown:3: \[S\] rests on itself, by way of \[T\] \(line 8\)"):
        weigh(first, second)


def test_a_claim_that_supports_itself_is_refused() -> None:
    with pytest.raises(ClewError, match=r"\[S\] rests on itself; take out"):
        weigh(claim("S", ("+", "[S]")))


def test_a_circle_through_an_argument_is_refused() -> None:
    with pytest.raises(ClewError, match=r"rests on itself.*<A>"):
        weigh(claim("S", ("+", "[C]")), argue("A", Statement("S"), to="C"))


def test_an_argument_spelled_out_twice_is_refused() -> None:
    with pytest.raises(ClewError, match="<A> is spelled out a second time"):
        weigh(argue("A", needed("p", 0.5), to="C"), argue("A", needed("q", 0.5), to="D"))


def test_a_chain_of_thousands_is_no_trouble() -> None:
    blocks = [claim(f"S{i}", ("+", f"[S{i + 1}]")) for i in range(3000)]
    assert weigh(*blocks, claim("S3000", credence=0.7)).statements["S0"].credence == 0.7


# Worlds counted one by one


SHARES = st.integers(0, 20).map(lambda n: n / 20)


def _chance(flips: list[tuple[bool, float]]) -> float:
    return math.prod(p if up else 1 - p for up, p in flips)


def _worlds(shares: list[float]) -> list[tuple[tuple[bool, ...], float]]:
    sides = itertools.product((True, False), repeat=len(shares))
    return [(world, _chance(list(zip(world, shares, strict=True)))) for world in sides]


@settings(deadline=None)
@given(st.lists(SHARES, min_size=1, max_size=4), st.lists(SHARES, max_size=3), SHARES)
def test_a_step_is_the_share_of_worlds_in_which_it_goes_through(
    seen: list[float], joint: list[float], inference: float
) -> None:
    premises = [witness(f"w{i}", p, f"l{i}") for i, p in enumerate(seen)]
    premises += [needed(f"n{i}", p) for i, p in enumerate(joint)]
    total = 0.0
    for world, chance in _worlds([*seen, *joint, inference]):
        if any(world[: len(seen)]) and all(world[len(seen) :]):
            total += chance
    made = weigh(argue("A", *premises, to="C", inference=inference))
    assert made.statements["C"].credence == pytest.approx(total, abs=1e-12)


@settings(deadline=None)
@given(st.lists(SHARES, min_size=1, max_size=5), st.lists(SHARES, max_size=4))
def test_a_claim_counts_supported_worlds_and_half_of_those_that_are_attacked_too(
    supports: list[float], attacks: list[float]
) -> None:
    total = 0.0
    for world, chance in _worlds([*supports, *attacks]):
        if any(world[: len(supports)]):
            total += chance / 2 if any(world[len(supports) :]) else chance
    blocks = [claim(f"p{i}", credence=p) for i, p in enumerate(supports)]
    blocks += [claim(f"o{i}", credence=p) for i, p in enumerate(attacks)]
    edges = [("+", f"[p{i}]") for i in range(len(supports))] + [("-", f"[o{i}]") for i in range(len(attacks))]
    assert weigh(claim("S", *edges), *blocks).statements["S"].credence == pytest.approx(total, abs=1e-12)


@settings(deadline=None)
@given(st.lists(st.tuples(SHARES, st.sampled_from("xyz")), min_size=1, max_size=6))
def test_witnesses_of_a_lineage_stand_and_fall_together(seen: list[tuple[float, str]]) -> None:
    """One draw per lineage decides for all its witnesses: each holds where the draw is below its credence."""
    bands = []
    for name in sorted({line for _, line in seen}):
        edges = sorted({0.0, 1.0, *(p for p, line in seen if line == name)})
        bands.append([(name, low, high) for low, high in itertools.pairwise(edges)])
    total = 0.0
    for world in itertools.product(*bands):
        draw = {name: (low + high) / 2 for name, low, high in world}
        if any(draw[line] < p for p, line in seen):
            total += math.prod(high - low for _, low, high in world)
    premises = [witness(f"w{i}", p, line) for i, (p, line) in enumerate(seen)]
    assert weigh(argue("A", *premises, to="C")).statements["C"].credence == pytest.approx(total, abs=1e-12)


# What must hold for every map


class Source(NamedTuple):
    credence: float | None
    lineage: str | None
    seen: bool


class Made(NamedTuple):
    """A statement or argument made from earlier ones, so that no map has a circle."""

    argument: bool
    premises: tuple[int, ...]
    inference: float
    supports: tuple[int, ...]
    attacks: tuple[int, ...]
    own: float | None
    seen: bool


class Plan(NamedTuple):
    sources: tuple[Source, ...]
    made: tuple[Made, ...]


@st.composite
def plans(draw: st.DrawFn, unstated: bool = True) -> Plan:
    stated = st.none() | SHARES if unstated else SHARES
    names = st.sampled_from(["x", "y", "z", None])
    sources = draw(st.lists(st.builds(Source, stated, names, st.booleans()), min_size=1, max_size=5))
    made: list[Made] = []
    for index in range(draw(st.integers(1, 5))):
        earlier = st.lists(st.integers(0, len(sources) + index - 1), unique=True, max_size=3).map(tuple)
        some = st.lists(st.integers(0, len(sources) + index - 1), unique=True, min_size=1, max_size=4).map(tuple)
        own = st.none() | SHARES
        made.append(draw(st.builds(Made, st.booleans(), some, SHARES, earlier, earlier, own, st.booleans())))
    return Plan(tuple(sources), tuple(made))


def _title(index: int) -> str:
    return f"s{index}"


def blocks_of(plan: Plan) -> list[Statement | Argument]:
    """Item k of the plan is statement sk; an argument ak concludes it. Attacks of an argument strike the argument."""
    blocks: list[Statement | Argument] = []
    for index, source in enumerate(plan.sources):
        make = witness if source.seen else needed
        blocks.append(make(_title(index), source.credence, source.lineage))
    for index, made in enumerate(plan.made, len(plan.sources)):
        edges = tuple(relation("+", f"[{_title(i)}]") for i in made.supports)
        edges += tuple(relation("-", f"[{_title(i)}]") for i in made.attacks)
        tags = ("observation",) if made.seen else ()
        if made.argument:
            premises = [Statement(_title(i)) for i in made.premises]
            argument = argue(f"a{index}", *premises, to=_title(index), inference=made.inference)
            blocks += [argument._replace(relations=edges), Statement(_title(index), tags=tags)]
        else:
            blocks.append(Statement(_title(index), "", tags, data=data(credence=made.own), relations=edges))
    return blocks


def every(made: Credences) -> dict[Node, float | None]:
    found = {Node("statement", title): belief.credence for title, belief in made.statements.items()}
    return found | {Node("argument", title): belief.credence for title, belief in made.arguments.items()}


def _signs(blocks: list[Statement | Argument], start: Node) -> dict[Node, set[int]]:
    """Whether a rise at `start` pushes each node up (+1), down (-1) or both."""
    graph = connect(Document(tuple(blocks)))
    signs: dict[Node, set[int]] = {start: {1}}
    changed = True
    while changed:
        changed = False
        for node in graph.nodes():
            for below in graph.below(node):
                against = below in graph.attacks.get(node, ())
                both_ways = against and any(
                    below in table.get(node, ()) for table in (graph.premises, graph.supports, graph.concluders)
                )
                pushes = signs.get(below, set())
                new = {sign * side for sign in pushes for side in ((1, -1) if both_ways else (-1 if against else 1,))}
                if not new <= signs.setdefault(node, set()):
                    signs[node] |= new
                    changed = True
    return signs


@settings(deadline=None)
@given(plans(), st.data())
def test_raising_a_figure_never_lowers_what_it_supports_nor_raises_what_it_attacks(
    plan: Plan, pick: st.DataObject
) -> None:
    index = pick.draw(st.integers(0, len(plan.sources) + len(plan.made) - 1))
    raised, start = _raised(plan, index, pick)
    before, after = every(weigh(*blocks_of(plan))), every(weigh(*blocks_of(raised)))
    signs = _signs(blocks_of(plan), start)
    for node, old in before.items():
        new = after[node]
        assert (old is None) == (new is None)
        if old is None or new is None:
            continue
        pushes = signs.get(node, set())
        assert new >= old or -1 in pushes, node
        assert new <= old or 1 in pushes, node


def _raised(plan: Plan, index: int, pick: st.DataObject) -> tuple[Plan, Node]:
    if index < len(plan.sources):
        source = plan.sources[index]
        if source.credence is None:
            return plan, Node("statement", _title(index))
        higher = source._replace(credence=pick.draw(st.floats(source.credence, 1.0)))
        return plan._replace(sources=_put(plan.sources, index, higher)), Node("statement", _title(index))
    at = index - len(plan.sources)
    made = plan.made[at]
    if made.argument:
        stronger = made._replace(inference=pick.draw(st.floats(made.inference, 1.0)))
        return plan._replace(made=_put(plan.made, at, stronger)), Node("argument", f"a{index}")
    if made.own is None:
        return plan, Node("statement", _title(index))
    surer = made._replace(own=pick.draw(st.floats(made.own, 1.0)))
    return plan._replace(made=_put(plan.made, at, surer)), Node("statement", _title(index))


def _put(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    return (*items[:index], item, *items[index + 1 :])


@settings(deadline=None)
@given(plans())
def test_every_credence_is_a_share_or_not_stated(plan: Plan) -> None:
    made = weigh(*blocks_of(plan))
    for credence in every(made).values():
        assert credence is None or 0.0 <= credence <= 1.0
    for belief in (*made.statements.values(), *made.arguments.values()):
        assert 0.0 <= belief.attack <= 1.0
        assert all(0.0 <= strength <= 1.0 for _, strength in belief.lineages)


@settings(deadline=None)
@given(plans(), st.randoms(use_true_random=False))
def test_neither_the_order_of_blocks_nor_that_of_premises_matters(plan: Plan, random: object) -> None:
    shuffle = random.shuffle  # type: ignore[attr-defined]
    blocks = blocks_of(plan)
    made = weigh(*blocks)
    mixed = []
    for block in blocks:
        relations = list(block.relations)
        shuffle(relations)
        block = block._replace(relations=tuple(relations))
        if isinstance(block, Argument):
            premises = [step.statement for step in block.steps[:-1]]
            shuffle(premises)
            steps = [Step(number, statement) for number, statement in enumerate(premises, 1)]
            block = block._replace(steps=(*steps, block.steps[-1]))
        mixed.append(block)
    shuffle(mixed)
    assert weigh(*mixed) == made


@settings(deadline=None)
@given(plans())
def test_the_same_map_gives_the_same_result(plan: Plan) -> None:
    assert weigh(*blocks_of(plan)) == weigh(*blocks_of(plan))


@settings(deadline=None)
@given(plans(unstated=False), st.data())
def test_the_same_source_again_at_no_higher_credence_changes_nothing(plan: Plan, pick: st.DataObject) -> None:
    sources = tuple(source._replace(lineage=source.lineage or f"own{i}") for i, source in enumerate(plan.sources))
    plan = plan._replace(sources=sources)
    index = pick.draw(st.integers(0, len(sources) - 1))
    source = sources[index]
    again = source._replace(credence=pick.draw(st.floats(0.0, source.credence or 0.0)))
    before = weigh(*blocks_of(plan))
    blocks = []
    for block in blocks_of(plan):
        if isinstance(block, Argument) and source.seen:
            premises = [step.statement for step in block.steps[:-1]]
            if any(premise.title == _title(index) for premise in premises):
                premises.append(witness("again", again.credence, again.lineage))
            steps = [Step(number, statement) for number, statement in enumerate(premises, 1)]
            block = block._replace(steps=(*steps, block.steps[-1]))
        targets = [(edge.kind, edge.target) for edge in block.relations]
        for kind in ("support", "attack"):
            if (kind, _title(index)) in targets:
                block = block._replace(relations=(*block.relations, Relation(kind, "in", "again", "statement")))
        blocks.append(block)
    after = weigh(*blocks, (witness if source.seen else needed)("again", again.credence, again.lineage))
    for table, other in ((before.statements, after.statements), (before.arguments, after.arguments)):
        for title, belief in table.items():
            assert (belief.credence, belief.lineages) == (other[title].credence, other[title].lineages)


# Words


def test_each_word_begins_where_the_scale_says() -> None:
    firsts = (1.0, 0.97, 0.9699, 0.85, 0.65, 0.35, 0.15, 0.03, 0.0299, 0.0)
    words = [word(credence) for credence in firsts]
    assert words == [
        "almost certain",
        "almost certain",
        "very likely",
        "very likely",
        "likely",
        "even odds",
        "unlikely",
        "very unlikely",
        "almost excluded",
        "almost excluded",
    ]


def test_a_figure_is_never_rounded_to_certainty() -> None:
    assert [number(value) for value in (1.0, 0.9999, 0.994, 0.0001, 0.0, None)] == [
        "1.00",
        ">0.99",
        "0.99",
        "<0.01",
        "0.00",
        "?",
    ]
    assert said(0.847) == "0.85 very likely"
    assert said(None) == "not stated"


# The documentation and the folklore map


def test_the_worked_example_of_the_documentation_comes_out_as_written() -> None:
    text = (Path(__file__).parents[2] / "docs" / "EVIDENCE.md").read_text(encoding="utf-8")
    example = text.split("```argdown\n")[1].split("```")[0]
    made = propagate(argdown.parse(example, "EVIDENCE.md"))
    figures = [float(row.split("|")[-2]) for row in text.splitlines() if row.startswith(("| witnesses", "| `"))]
    assert figures == [
        made.arguments["Seed Runs"].support,
        made.arguments["Seed Runs"].credence,
        made.statements["Schedule Matters"].credence,
        made.statements["Warm-up Helps"].credence,
    ]


@pytest.mark.skipif(not FOLKLORE.exists(), reason="the folklore map is not beside this checkout")
def test_the_folklore_map_gives_the_figures_in_the_documentation() -> None:
    made = propagate(argdown.parse(FOLKLORE.read_text(encoding="utf-8"), FOLKLORE.name))
    top = made.statements["Folklore Reliable"]
    assert top.attack == pytest.approx(1 - 0.74 * 0.76)
    assert top.support == pytest.approx(1 - 1.669e-6, abs=1e-9)
    assert top.credence == pytest.approx(0.7812, abs=1e-5)
    assert made.arguments["Normalization Consensus"].credence == 0.8946
    assert made.arguments["Batch Size Evidence"].credence == 0.83725  # one author twice: 0.85 x (1 - 0.1 x 0.15)
    assert len([part for part in top.parts if part.role == "concluded" or part.role == "support"]) == 12
    assert all(belief.credence is not None for belief in made.statements.values())
