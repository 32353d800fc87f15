"""Do two networks that play against each other pull in opposite directions?

A network that is called on what another one makes and on something else, and told them apart, is a judge. On the steps
that are looked at, the gradient that arrives at its scores for what was made is noted twice: when the judge learns, and
when the maker does.

Why it matters: a maker that is paid for being caught gets worse with every step, and both losses fall.
Cannot tell: how strong either is; a judge that gets several inputs glued together.
Silent when: nothing is judged apart (an encoder and its head learn together on purpose), a function of the script's own
reverses the gradient, or the two do not learn in turns.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from clew.observe.hooks import tensors_in
from clew.observe.watch import Answer, Forward, OptimizerEvent, Saw, Watch
from clew.observe.watches._training_values import any_gradient, fingerprint, held_by, sample
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

VALUES = 4096
MADE = 32  # outputs remembered
CLEAR = 0.9  # of the scores of one pass are pushed the same way
TURNS = 4


class Pass(NamedTuple):
    """One call of a judge: on what the maker `made` (None: on something else), and which way its scores are pushed."""

    judge: int
    made: int | None
    cut: bool  # no gradient can go back to the maker
    push: float
    place: Place | None


class Pair:
    """What was seen of one maker and its judge."""

    def __init__(self) -> None:
        self.real = self.fake = 0.0  # the pushes of the judge's latest turn
        self.opposed = self.together = self.cut = 0
        self.place: Place | None = None


class PlayersPull(Watch):
    test = "players_pull"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.made: dict[tuple[Any, int], int] = {}
        self.fired: list[Pass] = []
        self.pairs: dict[tuple[int, int], Pair] = {}

    def forward(self, event: Forward) -> None:
        if not self.recorder.sampled or not event.grad or len(self.recorder.optimizers) < 2:
            return
        given = next((held for held in tensors_in(event.inputs, torch) if held.is_floating_point()), None)
        output = next((held for held in tensors_in(event.output, torch) if held.requires_grad), None)
        if output is None:
            return
        key = _mark(given) if given is not None else None
        maker = self.made.get(key) if key is not None else None
        if maker != event.model:
            self._follow(event, output, maker, given)
        if len(self.made) >= MADE:
            self.made.clear()
        told = _mark(output)
        if told is not None:
            self.made[told] = event.model

    def _follow(self, event: Forward, output: torch.Tensor, maker: int | None, given: torch.Tensor | None) -> None:
        """Note which way the next backward pushes these scores. The hook changes nothing and holds no tensor."""
        node: Any = given.grad_fn if given is not None else None
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return
        watch = weakref.ref(self)
        cut = given is None or not given.requires_grad
        judge, place = event.model, event.place

        def pushed(gradient: torch.Tensor) -> None:
            held = watch()
            if held is not None and not held.recorder.busy and len(held.fired) < MADE:
                with held.recorder.quietly():
                    push = float(gradient.detach().sign().mean())
                held.fired.append(Pass(judge, maker, cut, push, place))

        output.register_hook(pushed)  # type: ignore[no-untyped-call]

    def before_step(self, event: OptimizerEvent) -> None:
        fired, self.fired = self.fired, []
        if not event.sampled or not fired:
            return
        own = {id(parameter) for parameter in held_by(event.optimizer)}
        models = dict(self.recorder.live_models())
        steps = {number for number, held in models.items() if own & {id(p) for p in held.parameters()}}
        for seen in fired:
            if seen.made is None or (len(self.pairs) >= MADE and (seen.made, seen.judge) not in self.pairs):
                continue
            pair = self.pairs.setdefault((seen.made, seen.judge), Pair())
            if seen.judge in steps and seen.made not in steps:
                others = [held.push for held in fired if held.judge == seen.judge and held.made is None]
                pair.fake, pair.real = seen.push, (sum(others) / len(others) if others else 0.0)
            elif seen.made in steps and seen.judge not in steps:
                self._turn(pair, seen, any_gradient(held_by(event.optimizer)))

    def _turn(self, pair: Pair, seen: Pass, reached: bool) -> None:
        """The maker is about to step."""
        if pair.fake * pair.real > -CLEAR * CLEAR:
            return  # the judge was not telling two things apart
        pair.place = seen.place
        if seen.cut and not reached:
            pair.cut += 1
        elif pair.fake * seen.push >= CLEAR * CLEAR:
            pair.together += 1
        else:
            pair.opposed += 1

    def read(self) -> Answer:
        known = [pair for pair in self.pairs.values() if pair.opposed + pair.together + pair.cut >= TURNS]
        if not known:
            return Unclear("no generator and discriminator that train alternately were seen")
        for pair in known:
            turns = pair.opposed + pair.together + pair.cut
            if pair.cut == turns:
                says = "the generator steps on a score of its output, and that output is detached before it is scored"
                return Saw("cut_off", turns=turns).at(pair.place).saying(says)
            if pair.together >= CLEAR * turns:
                says = (
                    "generator and discriminator push the scores the same way: the generator learns to be "
                    "recognised as fake"
                )
                return Saw("together", turns=turns).at(pair.place).saying(says)
        return Saw("opposed", turns=sum(pair.opposed for pair in known))


def _mark(tensor: torch.Tensor) -> tuple[Any, int] | None:
    held = sample(tensor, VALUES)
    return (tuple(tensor.shape), fingerprint(held)) if held is not None else None
