"""Whether parts of a stored tensor are written to as the model is given them, and come back as the write left them.

`for x in images.split(64)` hands out views: what is added to one in place is added to the images. Where a model in
training was given such a part after a write, the writes in the user's code are listened to from then on. A few rows of
each are compared: those that stand there as an earlier write left them, and are changed once more, have lost what they
were. Writes to other places must lie between, so that the state of a simulation, which is moved on and on in its one
place, is none. A copy that is made anew for each pass does not come back, and a write that changes nothing the second
time (a limit) does no harm.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch

from clew.observe import hooks as observed
from clew.observe.guard import release
from clew.observe.patches import unframe
from clew.observe.places import is_users, users_place
from clew.observe.roll import tensors

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from clew.observe.recorder import Recorder
    from clew.observe.watch import Forward
    from clew.records.place import Place

WRITES = (
    "add_ sub_ mul_ div_ pow_ lerp_ addcmul_ neg_ clamp_ masked_fill_ "
    "__iadd__ __isub__ __imul__ __itruediv__ __setitem__"
).split()
"""What builds on the values that stand there. Room that is filled anew, as by copy_, keeps nothing."""
ROWS, VALUES = 8, 64
FEWEST = 3  # different values in a row that can be told from others
MOST = 1 << 16
ENOUGH, KINDS = 8, 4
"""So many rows must have come back, and so many different ones."""
BETWEEN = 2
RECENT = 256

Mark = tuple[int, torch.Size]


class Site:
    """A line that writes."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self.shown = False  # whether a model in training was given what it wrote to
        self.back = 0
        self.kinds: set[int] = set()


class Rewritten:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.listening = self.over = False
        self.broken = ""  # why it looks no further
        self.sites: dict[tuple[CodeType, int], Site] = {}
        self.left: dict[int, int] = {}  # rows as a write left them, with the number of the visit
        self.visits = 0
        self.address = 0
        self.recent: dict[Mark, list[Site]] = {}  # the lines that wrote to a part in this step

    def forward(self, event: Forward) -> None:
        """What a model was given, on a sampled step."""
        if event.evaluation or not event.grad:
            return
        for tensor in tensors(event.inputs, torch):
            if not is_part(tensor):
                continue
            if not self.listening and not tensor.is_inference() and tensor._version:
                self._listen()
            for site in self.recent.get(mark(tensor), ()):
                site.shown = True
        self.recent.clear()

    def found(self) -> Site | None:
        for site in self.sites.values():
            if site.shown and site.back >= ENOUGH and len(site.kinds) >= KINDS:
                return site
        return None

    # --- listening

    def _listen(self) -> None:
        """Once, and through the patches of the hooks, which take everything off again."""
        self.listening = True
        held = next((item for item in observed._installed if item.recorder is self.recorder), None)
        if held is not None:
            for name in WRITES:
                held.patches.replace(torch.Tensor, name, functools.partial(self._tapped, held, name == "__setitem__"))

    def _tapped(self, held: observed.Hooks, setting: bool, original: Any) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            before = self._before(held, frame, args[:1] if not setting or _masks(*args[1:2]) else ())
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise
            if before:
                self._after((frame.f_code, frame.f_lasti), args[0], before)
            return result

        return method

    def _before(self, held: observed.Hooks, frame: FrameType, args: tuple[Any, ...]) -> list[int]:
        if self.over or held.recorder.busy or held.inside_backward or not torch.is_grad_enabled():
            return []
        try:
            if held.compiling() or held.elsewhere() or not is_users(frame.f_code.co_filename):
                return []
            held.recorder.busy = True  # what is called here is none of the script's calls
            return rows_of(args[0]) if args and self._counts(args[0]) else []
        except BaseException as error:  # noqa: BLE001  # the script must not notice
            release(error)
            self.over, self.broken = True, f"{type(error).__name__}: {error}"
            return []
        finally:
            held.recorder.busy = False

    def _counts(self, tensor: Any) -> bool:
        if not isinstance(tensor, torch.Tensor) or len(self.left) >= MOST or not is_part(tensor):
            return False
        # values of a device are not waited for between samples
        return self.recorder.sampled or tensor.device.type == "cpu"

    def _after(self, key: tuple[CodeType, int], tensor: torch.Tensor, before: list[int]) -> None:
        self.recorder.busy = True
        try:
            self._wrote(key, tensor, before)
        except BaseException as error:  # noqa: BLE001  # as above
            release(error)
            self.over, self.broken = True, f"{type(error).__name__}: {error}"
        finally:
            self.recorder.busy = False

    def _wrote(self, key: tuple[CodeType, int], tensor: torch.Tensor, before: list[int]) -> None:
        if key not in self.sites:
            self.sites[key] = Site(users_place())
        site = self.sites[key]
        if self.recorder.sampled and len(self.recent) < RECENT:
            self.recent.setdefault(mark(tensor), []).append(site)
        if tensor.data_ptr() != self.address:
            self.visits += 1
            self.address = tensor.data_ptr()
        for was, now in zip(before, rows_of(tensor), strict=True):
            if not was or not now or was == now:
                continue
            at = self.left.pop(was, None)
            if at is not None and self.visits - at >= BETWEEN:
                site.back += 1
                site.kinds.add(was)
            self.left[now] = self.visits


def _masks(chosen: Any = None) -> bool:
    """Whether an index leaves values of every row as they were: by a mask."""
    return isinstance(chosen, torch.Tensor) and chosen.dtype is torch.bool


def is_part(tensor: torch.Tensor) -> bool:
    """A view of some rows of a larger tensor, outside every graph: what a stored data set hands out."""
    base = tensor._base if tensor.layout is torch.strided else None
    return (
        base is not None
        and not tensor.requires_grad
        and not base.requires_grad
        and not tensor.is_complex()
        and tensor.dim() > 1
        and tensor.shape[0] > 0
        and tensor.numel() < base.numel()
        and tensor.is_contiguous()  # whole rows, not columns of a table
    )


def mark(tensor: torch.Tensor) -> Mark:
    return tensor.data_ptr(), tensor.shape


def rows_of(tensor: torch.Tensor) -> list[int]:
    """A few rows as numbers; 0 for a row that has hardly any values of its own."""
    with torch.no_grad():
        some = tensor.detach()[:: max(1, tensor.shape[0] // ROWS)][:ROWS]
        flat = some.reshape(len(some), -1)
        flat = flat[:, :: max(1, flat.shape[1] // VALUES)].double().cpu()
        return [hash(tuple(row)) if len(set(row)) >= FEWEST else 0 for row in flat.tolist()]
