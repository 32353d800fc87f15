"""Which lines of the source a fault of the data has to be fixed in: where targets and inputs become tensors, where
batches are put together, where the training rows are chosen.

The run says where loaders were made and which function puts batches together; the rest is read in the source.
"""

import ast
import os
import re
from collections.abc import Collection

from clew.app.left_out_lines import left_out
from clew.app.slices import Line, Project, Scope, Trail, called, named, returned
from clew.records.place import Place

Lines = dict[str, list[Place]]
TARGETS = ("data.labels_misaligned", "data.labels_masked", "data.labels_wrong_range")
INPUTS = ("data.not_normalized", "data.wrong_normalization", "data.input_destroyed", "data.nonfinite")
SPLITS = ("data.leak_split", "data.leak_temporal")
ELSEWHERE = ("data.augmentation",)
MAKES = re.compile(r"\b(tensor|as_tensor|from_numpy|Tensor|LongTensor|FloatTensor|stack)\(")
HELD_OUT = re.compile(r"(^|_)(val|valid|validation|test|dev|held|holdout|eval)(_|$|\d)", re.IGNORECASE)
IMPORTS = re.compile(r"\s*(import|from)\s")
RANDOM = re.compile(r"\brand(n|int|om|perm)?\b|rng|augment|transform|flip|crop|jitter|rotat", re.IGNORECASE)
SCALES = (
    r"[-*/] .*(mean|std|\bmin|\bmax|scale|norm|sigma)|[*/] ?\d|\d ?[*/] ?[a-z(]|"
    r"\b\w*(normali[sz]e|standardi[sz]e|rescale|prepare)\w*\(|scale\w*\.\w*transform\("
)
REORDERED = (
    r"\bmerge\(|(?<![\"'])\.join\([a-z]|sort_values|sort_index|sample\(frac|dropna|drop_duplicates|groupby|reindex"
)
"""What puts the rows of a table in another order, or drops some."""
WITHIN = r"(?!.*\bdims? ?= ?[(\[]?-?[1-9])"
"""Values that move within an example leave the order of the examples alone."""
ORDERS = rf"sort|shuffle(?! ?=)|perm|\broll\({WITHIN}|\bshift\(|\bsample\(|\[::|reversed|\bflip\({WITHIN}|" + REORDERED
REPEATS = r"over_?sampl|up_?sampl|smote|resampl|replace ?= ?True"
CENTRED = r"center ?=|center['\"]|bfill|backfill|filtfilt|savgol"
"""What looks ahead by itself, wherever it stands."""
BLURS = r"rolling|\bshift\(|convolve|cumsum|ewm|interpolate|bfill|fillna|smooth|resample|center="
FLOATS = r"astype\([^)]*float|\.float\(\)|to\(torch\.float|FloatTensor\(|dtype ?= ?(np|torch)\.float"
UNKNOWN = r"\.get\([^()]*,[^()]*(unk|oov)|\belse\b[^#]*(unk|oov)|(unk|oov)\w*\W*if\b.* not in"
"""Where a word that the vocabulary does not have gets its number."""
TURNS = r"\bflip(lr|ud)?\(|\[(\.\.\.|:)?,? ?::-1\]|\bRandom(Horizontal|Vertical)Flip\(|\bmirror\w*\("
COMES_IN = "rows of other times enter here"
ON_THE_WAY = {
    "data.labels_misaligned": (ORDERS, "the order is changed here"),
    "data.not_normalized": (SCALES, "scaled here"),
    "data.wrong_normalization": (SCALES, "scaled here"),
    "rl.obs_not_normalized": (SCALES, "scaled here"),
    "data.input_destroyed": (
        r"zeros_like|ones_like|full\(|fill|clamp|clip\(|round|nan_to_num|\* ?0\b",
        "values are replaced here",
    ),
    "data.leak_temporal": (BLURS, COMES_IN),
    "arch.causal_leak": (BLURS, COMES_IN),
    "data.leak_split": (r"\.(mean|std|min|max|fit|fit_transform)\(", "fitted to rows here"),
}
"""On the way of the training data to the loss: lines that do what a cause is about."""
IN_TRAINING = frozenset(("mirrored_classes=turned", "label_signal=turned", "target_moves_along=left_behind"))
"""What shows that a transform changes the examples of training, and not those of evaluation."""
ENCODES = (
    r"^(?!\s*(def|class|from|import)\b).*(\bencode\w*\(|\w*encoder\.\w+\(|fit_transform\(|factorize\(|\.codes\b)",
    r"return_inverse|class_to_idx|enumerate\((sorted\()?(set|list|dict|np\.unique)|setdefault\(\w+, ?len\(",
)
"""Where classes get their numbers: calls that encode, and where there are none, the making of a table."""
FEW = 2
PUT_TOGETHER, FIRST_TENSOR, MET = "batches are assembled here", "converted to a tensor here", "enters the loss here"
LEFT_OUT = "targets are excluded from the loss here"
NOT_TRAINING = "evaluation data is prepared here"
CHOSEN, OTHER_SET = "training rows are chosen here", "the evaluation data set is created here"


class Reader:
    """The lines of one run, looked up in its sources."""

    def __init__(self, lines: Lines, texts: dict[str, list[str]]) -> None:
        self.lines, self.texts = lines, {os.path.realpath(path): text for path, text in texts.items()}
        self.project = Project(texts)

    def by_cause(self, seen: Collection[str] = ()) -> dict[str, tuple[Place, ...]]:
        """`seen` are the outcomes of tests that speak for the causes that lead."""
        found: dict[str, list[Place]] = {}
        targets, inputs = self._items(-1), self._items(0)
        together = self._function("collate", PUT_TOGETHER)
        met = [place._replace(role=MET) for place in self.lines.get("loss", [])[:1]]
        for cause in TARGETS:
            found[cause] = [*together, *targets, *met] if "aligned" in cause else [*targets, *together, *met]
        masked = [self._place(line, LEFT_OUT) for line in left_out(self.project)[:FEW]]
        found["data.labels_masked"] = [*masked, *found["data.labels_masked"]]
        for cause in INPUTS:
            found[cause] = [*inputs, *together, *self._function("items", "examples are read here")]
        chosen = self._chosen()
        for cause in SPLITS:
            found[cause] = chosen
        loaders = [place._replace(role="the loader is created here") for place in self.lines.get("loader", [])[:1]]
        found["data.not_shuffled"] = found["data.rank_overlap"] = [*self._stream(), *loaders]
        for cause in ELSEWHERE:
            turned = self._doing(self._everywhere(), TURNS, "flipped here")
            found[cause] = [*self._elsewhere(), *self._drawn(), *turned[:1]]
            if IN_TRAINING.intersection(seen):
                found[cause] = [*turned[:1], *self._drawn(), *self._elsewhere()]
        way = self._way()
        for cause, (pattern, role) in ON_THE_WAY.items():
            lines = [*self._from_backward(), *way] if pattern is ORDERS else way
            done = self._doing(lines, pattern, role)
            if pattern is ORDERS and not done:
                everywhere = self._doing(self._everywhere(), REORDERED, role)
                done = everywhere if len(everywhere) <= FEW else []
            if pattern is BLURS:
                done = [*self._doing(lines, CENTRED, role), *self._doing(self._everywhere(), CENTRED, role), *done]
            if cause == "data.not_normalized" and not done:
                done = self._doing(lines, FLOATS, "converted to fractions here")
            if cause == "data.input_destroyed":
                places = self._doing(self._everywhere(), f"(?i){UNKNOWN}", "unknown words get their id here")
                done = done[:1] or places
            if cause == "data.leak_split":
                done = [*self._doing(lines, REPEATS, "rows are repeated here"), *done]
            found[cause] = [*done[:1], *found.get(cause, [])]
        found["rl.obs_not_normalized"] += inputs
        found_by = (self._doing(self._everywhere(), pattern, "encoded here") for pattern in ENCODES)
        encoded = next(filter(None, found_by), [])
        encoded.sort(key=lambda place: not HELD_OUT.search(self._named(place)))
        found["data.labels_encoded_apart"] = encoded[:FEW]
        found["data.train_val_mismatch"] = self._other_way(way, "fit_before_split=each_by_itself" in seen)
        return {cause: tuple(places[:3]) for cause, places in found.items() if places}

    # --- from the places that the run left

    def _starts(self, kind: str) -> list[tuple[Scope, ast.expr, int]]:
        """The data set that a loader was made with: what is written there."""
        found = []
        for place in self.lines.get(kind, [])[:2]:
            scope = self.project.scope(str(place.file), place.line or 0)
            calls = [
                node for node in self.project.calls(str(place.file), place.line or 0) if node.args or node.keywords
            ]
            loaders = [node for node in calls if called(node).endswith("Loader")] or calls[:1]
            exact = [node for node in loaders if node.lineno == place.line] or loaders
            for node in exact[:1] if scope is not None else ():
                given = next((held.value for held in node.keywords if held.arg == "dataset"), None)
                given = given or (node.args[0] if node.args else None)
                if given is not None and scope is not None:
                    found.append((scope, given, node.lineno))
        return found

    def _trail(self, kind: str, slot: int | None, wide: bool = False) -> list[Line]:
        trail = Trail(self.project, wide)
        slots = () if slot is None else (slot,)
        for scope, expression, line in self._starts(kind):
            trail.follow(scope, expression, line, slots)
        return trail.lines

    def _met(self, slot: int, wide: bool = False) -> list[Line]:
        """Without a loader: back from the loss, whose second argument is the target, or from the model's input."""
        trail = Trail(self.project, wide)
        for place in self.lines.get("loss" if slot else "trained", [])[:1]:
            scope = self.project.scope(str(place.file), place.line or 0)
            calls = [
                node for node in self.project.calls(str(place.file), place.line or 0) if len(node.args) > bool(slot)
            ]
            if scope is not None and calls:
                trail.follow(scope, calls[0].args[1 if slot else 0], place.line or 0)
        return trail.lines

    def _items(self, slot: int) -> list[Place]:
        """Where the last part of an example (its target) or the first (its input) becomes a tensor."""
        lines = self._trail("loader", slot) or self._met(slot)
        made = [line for line in lines if MAKES.search(self._text(line))]
        return [self._place(line, FIRST_TENSOR) for line in (made[:1] or self._in_example(slot) or lines[-1:])]

    def _in_example(self, slot: int) -> list[Line]:
        """Where the data set's own function makes a tensor of that part of what it returns."""
        for place in self.lines.get("items", [])[:1]:
            scope = self.project.scope(str(place.file), place.line or 0)
            results = [value for _, value in returned(scope.node)] if scope is not None else []
            pair = next((value for value in results if isinstance(value, ast.Tuple) and len(value.elts) > 1), None)
            if scope is None or pair is None:
                continue
            part = pair.elts[slot]
            name = part.id if isinstance(part, ast.Name) else ""
            at = [(scope.path, line) for given, _, line in named(scope.node) if given == name] or [
                (scope.path, part.lineno)
            ]
            return [line for line in at if MAKES.search(self._text(line))][:1]
        return []

    def _way(self) -> list[Line]:
        """Every line known of the way from where the data is read to the model, those nearest to the model first."""
        trails = [
            *(self._trail("loader", slot, True) for slot in (0, -1, None)),
            self._met(0, True),
            self._met(1, True),
        ]
        return list(dict.fromkeys(line for trail in trails for line in trail))

    def _from_backward(self) -> list[Line]:
        trail = Trail(self.project)
        for place in self.lines.get("backward", [])[:1]:
            scope = self.project.scope(str(place.file), place.line or 0)
            for node in self.project.calls(str(place.file), place.line or 0):
                if scope is not None and called(node) == "backward":
                    given = node.args[0] if node.args else getattr(node.func, "value", None)
                    trail.follow(scope, given, place.line or 0)
        return trail.lines

    def _everywhere(self) -> list[Line]:
        return [(path, line) for path, held in self.texts.items() for line in range(1, len(held) + 1)]

    def _doing(self, lines: list[Line], pattern: str, role: str) -> list[Place]:
        wanted = re.compile(pattern)
        written = ((line, self._text(line).partition("#")[0]) for line in lines)
        return [self._place(line, role) for line, text in written if wanted.search(text) and not IMPORTS.match(text)]

    def _other_way(self, training: list[Line], apart: bool) -> list[Place]:
        """Where the data outside training is prepared: scaled, then what is done for it alone."""
        other = self._trail("loader_elsewhere", 0, True) or self._called_with("evaluated")
        own = [line for line in other if line not in training]
        alone = [*self._doing(own, SCALES, "scaled here"), *self._doing(own, MAKES.pattern, FIRST_TENSOR)]
        shared = self._doing(other, SCALES, "scaled here")
        if apart and (fitted := self._doing(other, r"\.fit(_transform)?\(", "fitted here")):
            return fitted[:1]
        loaders = self.lines.get("loader_elsewhere", [])[:1]
        made = [place._replace(role="the evaluation loader is created here") for place in loaders]
        branches = [self._place(line, NOT_TRAINING) for line in self.project.without("train")]
        own_places = [self._place(line, OTHER_SET) for line in own[:1]]
        return [*alone[:1], *shared[:1], *(branches if len(branches) == 1 else ()), *made, *own_places]

    def _called_with(self, kind: str) -> list[Line]:
        """Back from what a model is called with there."""
        trail = Trail(self.project)
        for place in self.lines.get(kind, [])[:2]:
            scope = self.project.scope(str(place.file), place.line or 0)
            calls = [node for node in self.project.calls(str(place.file), place.line or 0) if node.args]
            if scope is not None and calls:
                trail.follow(scope, calls[-1].args[0], place.line or 0)
        return trail.lines

    def _function(self, kind: str, role: str) -> list[Place]:
        """A function of the user's, by the line that gives its result."""
        for place in self.lines.get(kind, [])[:1]:
            scope = self.project.scope(str(place.file), place.line or 0)
            lines = (
                [line for line, _ in returned(scope.node)] if scope is not None and scope.owner != scope.node else []
            )
            if lines and place.symbol and "<lambda>" not in place.symbol:
                return [place._replace(line=lines[-1], role=role)]
            return [place._replace(role=role)]
        return []

    def _stream(self) -> list[Place]:
        """A data set that gives its examples one after the other makes their order itself."""
        given = self._function("items", "determines the order of the examples")
        return [place for place in given if (place.symbol or "").endswith("__iter__")]

    def _chosen(self) -> list[Place]:
        """The last line on the way of the training rows that the held-out rows do not share."""
        training = self._trail("loader", None) or self._met(0)
        held_out = set(self._trail("loader_elsewhere", None)) or self._named_held_out(training)
        if not held_out:
            return []
        last = max((at for at, line in enumerate(training) if line in held_out), default=-1)
        own = [line for line in training[: last + 1] if line not in held_out]
        return [self._place(own[-1], CHOSEN)] if own else []

    def _named_held_out(self, training: list[Line]) -> set[Line]:
        """Beside the way of the training rows, what is named as held out."""
        trail = Trail(self.project)
        for path, line in training[:4]:
            scope = self.project.scope(path, line)
            if scope is not None:
                for name, expression, at in named(scope.node):
                    if HELD_OUT.search(name):
                        trail.lines.append((scope.path, at))
                        trail.follow(scope, expression, at - 1)
        return set(trail.lines)

    def _elsewhere(self) -> list[Place]:
        places = []
        for scope, expression, line in self._starts("loader_elsewhere")[:1]:
            trail = Trail(self.project)
            trail.follow(scope, expression, line)
            places += [self._place(held, OTHER_SET) for held in (*trail.lines[:1], (scope.path, line))[:1]]
        return places

    def _drawn(self) -> list[Place]:
        """Where an example is changed by chance as it is read."""
        for place in self.lines.get("items", [])[:1]:
            scope = self.project.scope(str(place.file), place.line or 0)
            first, last = (getattr(scope and scope.node, name, 0) for name in ("lineno", "end_lineno"))
            hits = (
                [line for line in range(first, last + 1) if RANDOM.search(self._text((scope.path, line)))]
                if scope
                else []
            )
            return [place._replace(line=line, role="changed at random here") for line in hits[:1]]
        return []

    def _named(self, place: Place) -> str:
        """What the line of a place gives a value to."""
        path = os.path.realpath(str(place.file))
        return "_".join(re.findall(r"\w+", self._text((path, place.line or 0)).partition("=")[0]))

    def _text(self, line: Line) -> str:
        text = self.texts.get(line[0], [])
        return text[line[1] - 1] if 0 < line[1] <= len(text) else ""

    def _place(self, line: Line, role: str) -> Place:
        folder = os.path.realpath(os.getcwd()) + os.sep
        return Place(line[0].removeprefix(folder), line[1], role=role)
