"""Cutting the tape of one training step out of a roll: the calls that the loss depends on, and what enters them."""

from __future__ import annotations

from typing import Any, NamedTuple

from clew.observe.roll import Raw, Roll
from clew.records.place import Place
from clew.tape.coding import slots_in
from clew.tape.model import Call, Tape, Under, Value
from clew.tape.names import short

LOSSES = frozenset(
    {
        "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
        "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss", "gaussian_nll_loss", "ctc_loss",
        "multilabel_margin_loss", "multi_margin_loss", "multilabel_soft_margin_loss", "soft_margin_loss",
        "hinge_embedding_loss", "cosine_embedding_loss", "margin_ranking_loss", "triplet_margin_loss",
    }
)  # fmt: skip


class Uncut(Exception):
    """Why a step cannot be replayed, as a sentence."""


class Names(NamedTuple):
    """What is known of tensors by id: names of parameters and buffers, and where an argument was given to a model."""

    parameters: dict[int, str]
    buffers: dict[int, str]
    arguments: dict[int, tuple[int, int]]


class Cut(NamedTuple):
    """A tape, and the tensors that enter it by slot."""

    tape: Tape
    tensors: dict[int, Any]


def cut(roll: Roll, loss: Any, names: Names, step: int) -> Cut:
    """The tape that ends in `loss`."""
    if roll.full:
        raise Uncut("the step makes too many calls to be captured")
    end = roll.find(loss)
    if end is None:
        raise Uncut(f"the loss came from {_origin(loss)}, outside the recorded step")
    end = _unscaled(roll, end)
    calls = _needed(roll, end)
    if not calls:
        raise Uncut(f"the loss came from {_origin(loss)}, outside the recorded step")
    for raw in calls:
        if not raw.function:
            what = f"{raw.said} at {raw.place}" if raw.place else raw.said
            raise Uncut(f"{what} cannot be called again")
    known = {slot for raw in calls for slot in raw.made}
    entering = [
        slot for slot in dict.fromkeys(s for raw in calls for s in raw.uses) if slot not in known or _early(calls, slot)
    ]
    for slot in entering:
        if slot not in roll.held:
            raise Uncut("a value of the step comes from outside the recording")
        tensor = roll.held[slot].tensor
        if tensor.grad_fn is not None and (not names.arguments.get(id(tensor)) or _written_by_hand(tensor)):
            user = next((raw.place for raw in calls if slot in raw.uses and raw.place is not None), None)
            raise Uncut(f"a value used at {user} comes from {_origin(tensor)}, which cannot be called again")
    tensors = {slot: roll.held[slot].tensor for slot in entering}
    calls, split, compared, loss_name = _split(calls)
    roles, rows = _roles(calls, split, tensors, names, compared)
    value = float(loss.detach()) if loss.numel() == 1 else float("nan")
    made = _made(roll, calls, split, end, tensors, roles, rows, names, loss_name, step)
    return made._replace(tape=made.tape._replace(value=value))


def _early(calls: list[Raw], slot: int) -> bool:
    """Whether a slot is used before any of the calls makes it: then it enters, and is changed in place on the way."""
    for raw in calls:
        if slot in raw.uses:
            return True
        if slot in raw.made:
            return False
    return False


def _origin(tensor: Any) -> str:
    name = type(tensor.grad_fn).__name__ if tensor.grad_fn is not None else "a constant"
    return f"the autograd function {name.removesuffix('Backward')}" if name.endswith("Backward") else name


def _written_by_hand(tensor: Any) -> bool:
    """Whether a value came out of an autograd function that is not torch's own: what led to it is not on the roll."""
    kind = getattr(type(tensor.grad_fn), "_forward_cls", None)
    return kind is not None and kind.__module__.partition(".")[0] != "torch"


def _unscaled(roll: Roll, end: int) -> int:
    """The loss before a gradient scaler multiplied it: by a constant that is a large power of two."""
    for raw in reversed(roll.calls):
        if end in raw.made:
            if raw.said in ("mul", "__mul__", "multiply") and len(raw.uses) == 2:
                held = roll.held.get(raw.uses[1])
                scale = float(held.tensor) if held is not None and held.tensor.numel() == 1 else 0.0
                if scale >= 256 and scale.is_integer() and int(scale) & (int(scale) - 1) == 0:
                    return int(raw.uses[0])
            return end
    return end


def _needed(roll: Roll, end: int) -> list[Raw]:
    """The calls that the loss depends on and that belong to the model or the loss, in order."""
    wanted = {end}
    kept = []
    for raw in reversed(roll.calls):
        if wanted.isdisjoint(raw.made) or not (raw.trained or raw.root >= 0):
            continue
        kept.append(raw)
        wanted.update(raw.uses)
    kept.reverse()
    return kept


def _split(calls: list[Raw]) -> tuple[list[Raw], int, set[int], str]:
    """The calls in order, those that only prepare a target last; where the loss begins; the slots that recognised
    losses compare with, however prepared; and the name of the first of these losses."""
    losses = [index for index, raw in enumerate(calls) if raw.said in LOSSES]
    name = calls[losses[0]].said if losses else ""
    compared = {slot for index in losses for slot in slots_in(_second(calls[index]))}
    preparing: set[int] = set()
    for index in range(len(calls) - 1, -1, -1):
        raw = calls[index]
        if not raw.trained and not compared.isdisjoint(raw.made) and _only_for(calls, index, preparing, losses):
            preparing.add(index)
            compared.update(raw.uses)
    inside = [index for index, raw in enumerate(calls) if raw.root >= 0 and index not in preparing]
    if inside and (not losses or losses[0] > inside[-1]):
        split = inside[-1] + 1
    elif losses and (not inside or calls[losses[0]].root >= 0):
        split = losses[0]
    else:
        split = inside[-1] + 1 if inside else len(calls)
    early = [index for index in sorted(preparing) if index < split]
    model = [raw for index, raw in enumerate(calls[:split]) if index not in preparing]
    return [*model, *(calls[index] for index in early), *calls[split:]], len(model), compared, name


def _only_for(calls: list[Raw], index: int, preparing: set[int], losses: list[int]) -> bool:
    """Whether what a call made is used by nothing but losses and the preparation of what they compare with."""
    made = set(calls[index].made)
    users = [other for other in range(index + 1, len(calls)) if not made.isdisjoint(calls[other].uses)]
    return all(other in preparing or other in losses for other in users)


def _second(raw: Raw) -> Any:
    """The target argument of a loss function."""
    if isinstance(raw.args, list) and len(raw.args) > 1:
        return raw.args[1]
    held = dict((raw.kwargs or {"dict": []})["dict"])
    return held.get("target")


def _roles(
    calls: list[Raw], split: int, tensors: dict[int, Any], names: Names, targets: set[int]
) -> tuple[dict[int, str], int]:
    in_model = {slot for raw in calls[:split] for slot in raw.uses}
    first = {slot: index for index, raw in reversed(list(enumerate(calls))) for slot in raw.uses}
    roles: dict[int, str] = {}
    for slot, tensor in tensors.items():
        if id(tensor) in names.parameters or (
            tensor.is_leaf and tensor.requires_grad and id(tensor) not in names.arguments
        ):
            roles[slot] = "parameter" if id(tensor) in names.parameters else "input"
        elif id(tensor) in names.buffers:
            roles[slot] = "buffer"
        elif slot in targets and slot not in in_model:
            roles[slot] = "target"
        elif id(tensor) in names.arguments:
            roles[slot] = "input" if slot in in_model else "target"
    sizes = [
        tensors[slot].shape[0] for slot, role in roles.items() if role in ("input", "target") and tensors[slot].dim()
    ]
    if not sizes:
        sizes = [tensor.shape[0] for slot, tensor in tensors.items() if slot not in roles and tensor.dim()]
    rows = max(set(sizes), key=sizes.count) if sizes else 0
    for slot, tensor in tensors.items():
        if slot in roles:
            continue
        by_rows = tensor.dim() > 0 and tensor.shape[0] == rows
        if not by_rows:
            roles[slot] = "constant"
        elif first[slot] >= split:
            roles[slot] = "target"
        else:
            roles[slot] = "input"
    return roles, rows


def _made(
    roll: Roll,
    calls: list[Raw],
    split: int,
    end: int,
    tensors: dict[int, Any],
    roles: dict[int, str],
    rows: int,
    names: Names,
    loss_name: str,
    step: int,
) -> Cut:
    made_by_model = {slot for raw in calls[:split] for slot in raw.made}
    used_by_loss = list(dict.fromkeys(slot for raw in calls[split:] for slot in raw.uses))
    again = _twice(calls, split, {slot: role for slot, role in roles.items() if not tensors[slot].requires_grad})
    tensors = {**tensors, **{new: tensors[old] for old, new in again.items()}}
    roles = {**roles, **dict.fromkeys(again.values(), "target")}
    outputs = [slot for slot in used_by_loss if slot in made_by_model]
    outputs += [
        slot
        for slot in used_by_loss
        if slot not in outputs and (roles.get(slot) == "parameter" or (slot in tensors and tensors[slot].requires_grad))
    ]  # an input that the loss differentiates by is handed on like a parameter that it penalises
    if split == len(calls) or not outputs:
        split, outputs = len(calls), [end]
    first = next((raw for raw in calls[split:] if raw.said in LOSSES), None)
    if first is not None and first.uses and first.uses[0] in outputs:
        outputs.remove(first.uses[0])
        outputs.insert(0, first.uses[0])
    unders: dict[Under, int] = {}
    places: dict[Place, int] = {}
    told = []
    for index, raw in enumerate(calls):
        args, kwargs = raw.args, raw.kwargs
        if index >= split and again:
            args, kwargs = _renamed(args, again), _renamed(kwargs, again)
        place = -1 if raw.place is None else places.setdefault(raw.place, len(places))
        told.append(
            Call(raw.function, args, kwargs, raw.made, unders.setdefault(raw.under, len(unders)), place, raw.module)
        )
    values = []
    for number, (slot, tensor) in enumerate(tensors.items()):
        role = roles[slot]
        name = names.parameters.get(id(tensor)) or names.buffers.get(id(tensor)) or f"{role}{number}"
        by_rows = tensor.dim() > 0 and tensor.shape[0] == rows and role not in ("parameter", "buffer")
        given = names.arguments.get(id(tensor))
        values.append(Value(slot, role, name, bool(tensor.requires_grad), by_rows, given))
    tape = Tape(
        tuple(values), tuple(told), split, tuple(outputs), end, loss_name, tuple(unders), tuple(places), rows,
        _left(roll, calls), step, 0.0, _device(tensors),
    )  # fmt: skip
    return Cut(tape, tensors)


def _left(roll: Roll, calls: list[Raw]) -> tuple[str, ...]:
    """What was read into Python of the values on the tape."""
    made = {slot for raw in calls for slot in raw.made}
    return tuple(said for said, slot in roll.left.items() if slot in made)


def _device(tensors: dict[int, Any]) -> str:
    return next((tensor.device.type for tensor in tensors.values() if tensor.requires_grad), "cpu")


def _twice(calls: list[Raw], split: int, roles: dict[int, str]) -> dict[int, int]:
    """Inputs that the loss compares with (an autoencoder's, a language model's) get a second slot there: changing
    what the model sees must not change what it is asked for."""
    before = {slot for raw in calls[:split] for slot in raw.uses}
    after = {slot for raw in calls[split:] for slot in raw.uses}
    highest = max((slot for raw in calls for slot in (*raw.uses, *raw.made)), default=0)
    both = [slot for slot in after & before if roles.get(slot) in ("input", "target")]
    return {slot: highest + 1 + index for index, slot in enumerate(sorted(both))}


def _renamed(value: Any, again: dict[int, int]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, again) for item in value]
    if isinstance(value, dict):
        ((kind, held),) = value.items()
        if kind == "t":
            return {"t": again.get(held, held)}
        if kind in ("tuple", "slice", "dict"):
            return {kind: _renamed(held, again)}
    return value


def signature(tape: Tape) -> tuple[Any, ...]:
    """Two steps with the same one went the same way: only their data differ."""
    return tuple((short(call.function), call.place, len(call.made)) for call in tape.calls), tuple(
        (value.role, value.name if value.role == "parameter" else "") for value in tape.values
    )
