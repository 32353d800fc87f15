"""Lines of the source and of settings that a cause has to be fixed in, where its clues were seen elsewhere: the line
that makes a value, not only the one that uses it.

Each cause has words: of the line that does what it is about, and of the setting that it is about. Lines count where
training can come: from the line that starts the backward pass the calls are followed down, and up to the callers. The
nearest come first. A setting counts before others when its name stands on one of the lines found.
"""

import ast
import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from clew.app.options import Option, of_file, of_source
from clew.app.slices import Function, Line, Project, Scope, Trail, called, named, returned
from clew.records.place import SET_HERE, Place

Lines = dict[str, list[Place]]
FAR = 7
FULL = 2
CODE = (ast.Name, ast.Attribute, ast.Call, ast.arg)
STATEMENTS = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


class Words(NamedTuple):
    """`lines` in order of preference: the first that is found anywhere is taken. `options` are matched against the
    whole name of a setting, sections included."""

    role: str = ""
    lines: tuple[str, ...] = ()
    options: str = ""
    most: int = FULL
    settings: int = FAR
    values: str = ""  # what a setting must be set to


VALUE = r"(value|critic|baseline|\bv\b|q_?\d?\b|\bvf?_)"
CHOSEN = r"(log_?prob|logp|ratio|surr)"
OF_WEIGHTS = r"(weight|coef|lambda|alpha|beta|scale|loss)"
CLOSER = r"(mse_loss|huber|smooth_l1|\*\* ?2|pow\(2)"
RIGHT = r"\b\w*(correct|right|hits)\w*\b"
SIZES = r"hidden|width|latent|bottleneck|channels|units|dim\b|d_model|embed|depth|n_?layers|rank\b|code|drop"

OUTPUT = r"output|activation|\bact\b|final|head|squash|link"
SQUASHED = r"soft_?max|sigmoid|prob"

WORDS = {
    "rl.discounting": Words(options=r"gamma|discount"),
    "rl.entropy_flat": Words(options=r"\bent(ropy)?_?|alpha"),
    "rl.entropy_collapse": Words(options=r"\bent(ropy)?_?"),
    "rl.exploration": Words(options=r"eps(ilon)?_|explor"),
    "rl.target_network": Words(options=r"\btau\b|polyak|target"),
    "rl.value_not_learning": Words(
        "the value loss is computed here", (rf"{VALUE}.*{CLOSER}|(mse_loss|huber|smooth_l1)\w*\(.*{VALUE}",)
    ),
    "rl.kl_spike": Words(
        "the policy loss is computed here", (rf"{CHOSEN}.*\*|\*.*{CHOSEN}",), r"clip|target_?kl|epochs"
    ),
    "rl.reward_scale": Words("rewards are scaled here", (r"reward\w*\W*\s*\*|\*\W*\w*reward",), r"reward"),
    "rl.obs_not_normalized": Words(options=r"normali[sz]|(?<!grad_)norm\w*obs|obs\w*norm"),
    "data.not_shuffled": Words(options=r"shuffle|buffer"),
    "data.not_normalized": Words(options=r"normali[sz]|standardi[sz]"),
    "data.leak_target": Words(options=r"\blags?\b|horizon|offset"),
    "data.augmentation": Words(options=r"augment|\baug\b|crop|flip|jitter|mixup|cutout|eras|rotat", settings=1),
    "loss.disconnected": Words(
        "detached from the graph here", (r"\.detach\(", r"no_grad", r"\.data\b|\.item\(|numpy\(")
    ),
    "loss.scale_imbalance": Words(
        "loss terms are summed here", (rf"{OF_WEIGHTS}\w*\s*\*|\*\s*\S*{OF_WEIGHTS}",), OF_WEIGHTS
    ),
    "loss.metric_misaligned": Words(
        "correct predictions are counted here",
        (rf"{RIGHT}.*/|\bacc\w*\b.*(mean\(|/)|return .*{RIGHT}", r"==.*(sum|mean)\(|argmax\(.*==|> ?\S*(thresh|0\.5)"),
        r"thresh|cut_?off",
    ),
    "loss.terms_cancel": Words(options=r"(weight|coef|lambda|loss)"),
    "pinn.boundary_ignored": Words(
        "loss terms are weighted here",
        (rf"{OF_WEIGHTS}\S*\s*\*|\*\s*\S*{OF_WEIGHTS}",),
        r"weight|lambda|coef",
        values=r"^(?!['\"]?1(\.0*)?['\"]?$)",
    ),
    "pinn.not_nondimensional": Words(
        "nondimensionalised here",
        (
            r"/ ?\S*(unit|scale|length|width|height|rise|span|norm|ref|max|total|population)",
            r"(tensor|from_numpy)\(.*(read_|loadtxt|numpy\(|\[)",
        ),
        r"unit|scale",
    ),
    "pinn.degenerate_parameter": Words(
        "the value is created or clamped here",
        (r"\.clamp_(min_|max_)?\(|\.data\b.*\b(clamp|clip)\(", r"\bParameter\("),
        r"clamp|guess|lowest|highest|bounds?\b|(lower|upper)_?(bound|limit)",
    ),
    "arch.capacity": Words(options=SIZES),
    "train.rank_divergence": Words(
        "ranks are synchronised here", (r"DistributedDataParallel\(|\bDDP\(|broadcast\w*\(", r"all_reduce\(")
    ),
    "data.labels_misaligned": Words(
        "joined row by row here",
        (r"\b(concat|hstack|column_stack)\(.*axis ?= ?1|\b(hstack|column_stack)\(",),
        most=1,
    ),
    "loss.padding_counted": Words(
        "padded here",
        (
            r"(label|tag|target|tgt|trg|\by\b).*(pad_sequence\(|padding_value|F\.pad\()|pad_sequence\(.*(label|tag|target|tgt|trg|\by\b)",
            r"pad_sequence\(|padding_value|F\.pad\(|ignore_index",
        ),
    ),
    "arch.causal_leak": Words(
        "the mask is made here", (r"\btri[ul](_indices)?\(|subsequent_mask\(|is_causal|causal_mask\s*=",)
    ),
    "train.params_not_in_optimizer": Words(
        "parameters are selected here",
        (
            r"startswith\(|endswith\(|if .*\bin (n|name|key)\b|(n|name|key) (not )?in\b",
            r"if .*\b(n|name|key) ?[!=]=|if .*isinstance\((m|mod|module|layer|part)\b",
        ),
        most=1,
    ),
    "num.low_precision": Words(
        "cast here",
        (r"\.(to|type)\(.*(dtype|half|float16|precision)|\.half\(\)|\.bfloat16\(\)",),
        options=r"precision|dtype|\bhalf\b|bf16|fp16|float16|\bamp\b",
    ),
    "arch.bad_init_scale": Words(options=r"\binit\w*(range|std|scale|gain|sigma)|\bgain\b|weight_?(std|scale|init)"),
    "loss.double_softmax": Words(options=OUTPUT, values=SQUASHED),
    "loss.missing_activation": Words(options=OUTPUT, values=rf"{SQUASHED}|logit|identity|none|linear"),
    "rl.misaligned_transition": Words(
        "taken from another step here",
        (
            r"\b\w*(rew|act|obs|state|done|term)\w*\[[^\]]*[-+] ?1\s*\]",
            r"\b\w*(rew|act|obs|state)\w*\[(:-1|1:)\]|\b(roll|shift)\(",
        ),
    ),
    "train.no_grad_in_training": Words(
        "gradients are switched off here", (r"no_grad|inference_mode|set_grad_enabled",)
    ),
}
MASKS = {"masked_fill": 0, "masked_fill_": 0, "where": 0, "scaled_dot_product_attention": 3}
"""Calls that apply a mask, and which argument it is."""
MASK = re.compile(r"(attn_|attention_)?mask$")
LEAVES = re.compile(r"[<>]=?|\btri[ul]\(")
CAUSAL = re.compile(r"\btril\((?!.*(diagonal|,\s*-?\d+\s*\)))|\btriu\(.*(diagonal ?= ?|, ?)1\s*\)")
OF_PARAMETERS = ("loss.disconnected", "arch.unused_parameters")
OF_TERMS = ("loss.terms_cancel", "loss.wrong_sign", "loss.scale_imbalance")
GENERATOR = re.compile(r"default_rng|RandomState|manual_seed|random\.seed|\bRandom\(|Generator\(|np\.random\.")
OWN_NAMES = ("weight", "bias", "model")
OF_OBSERVATIONS = ("rl.obs_not_normalized", "data.not_normalized", "data.wrong_normalization")
OBSERVES = re.compile(r"^(?!.*(size|space|dim|shape|num))_?(get_|make_)?(obs|state|view)", re.IGNORECASE)


class Finder:
    """The lines of one run: `lines` is what the run left, `texts` its sources, `settings` its configuration files."""

    def __init__(self, lines: Lines, project: Project, texts: dict[str, list[str]], settings: dict[str, list[str]]):
        self.project, self.lines = project, lines
        self.texts = {os.path.realpath(path): text for path, text in texts.items()}
        self.options = [held for path, text in settings.items() for held in of_file(path, text)]
        self.options += of_source(project)
        self.code: dict[str, list[int]] = {}
        self.names: dict[int, set[str]] = {}
        self.users: dict[str, list[Scope]] = {}
        self._mentioned()
        self.near = self._near()
        self.known: dict[str, tuple[Place, ...]] = {}  # settings whose value a clue measured, or that a file spells out

    def by_cause(
        self, met: Mapping[str, tuple[Place, ...]], measured: Mapping[str, Collection[float]] | None = None
    ) -> dict[str, tuple[Place, ...]]:
        """`met` has the places of the clues that speak for a cause: lines in the same function come first. `measured`
        has the numbers in them."""
        found = {}
        for cause, words in WORDS.items():
            seen = met.get(cause, ())
            hits = self._hits(words, seen)
            held = self._options(words, hits, seen)[: words.settings]
            options = [_place(option.path, option.line, f"{option.name} {SET_HERE}") for option in held]
            numbers = (measured or {}).get(cause, ())
            self.known[cause] = tuple(
                place for place, option in zip(options, held, strict=True) if _is_known(option, numbers)
            )
            lines = [_place(path, line, words.role) for path, line in hits[: words.most]]
            found[cause] = (*options[:1], *lines, *options[1:])
        for cause, traced in (("arch.causal_leak", self._mask_made), ("data.leak_split", self._called_before)):
            self.known[cause] = tuple(traced(met.get(cause, ())))
            found[cause] = (*self.known[cause], *found.get(cause, ()))
        for cause in OF_PARAMETERS:
            found[cause] = (*found.get(cause, ()), *self._uses(met.get(cause, ())))
        found["arch.unused_parameters"] = (*self._cut(met), *found["arch.unused_parameters"])
        for cause in OF_TERMS:
            found[cause] = (*found.get(cause, ()), *self._called_on(met.get(cause, ())))
        found["data.worker_rng"] = self._drawn_in_workers()
        for cause in OF_OBSERVATIONS:
            found[cause] = (*found.get(cause, ()), *self._observed())
        return {cause: tuple(dict.fromkeys(places)) for cause, places in found.items() if places}

    def _hits(self, words: Words, met: tuple[Place, ...]) -> list[Line]:
        scopes = {id(scope.node) for place in met if (scope := self._scope_of(place)) is not None}
        for pattern in words.lines:
            wanted = re.compile(pattern)
            hits = [
                (path, line)
                for path, held in self.code.items()
                for line in held
                if wanted.search(self.text(path, line))
            ]
            near = [
                (self._distance(scope), path, line, scope) for path, line in hits if (scope := self.scope(path, line))
            ]
            near = [hit for hit in near if hit[0] <= FAR or id(hit[3].node) in scopes]
            near.sort(key=lambda hit: (id(hit[3].node) not in scopes, *hit[:3]))
            if near:
                return [(path, line) for _, path, line, _ in near]
        return []

    def _options(self, words: Words, hits: list[Line], met: tuple[Place, ...]) -> list[Option]:
        """Settings of that kind, before others those whose names stand on a line that was found or met."""
        if not words.options:
            return []
        wanted = re.compile(words.options, re.IGNORECASE)
        places = [(os.path.realpath(str(place.file)), place.line) for place in met if place.file and place.line]
        texts = [self.text(path, line) for path, line in hits] + [self._statement(*place) for place in places]
        written = {word.lower() for text in texts for word in IDENTIFIER.findall(text)}
        held = [option for option in self.options if wanted.search(option.whole)]
        if words.values:
            held = [option for option in held if re.search(words.values, option.value, re.IGNORECASE)]
        held.sort(key=lambda option: (option.name.lower() not in written, option.path.endswith(".py")))
        return held[:FULL]

    def _uses(self, met: tuple[Place, ...]) -> list[Place]:
        """Where the parts of the model that clues name are read; where nothing reads one, its neighbours."""
        names = dict.fromkeys(name for place in met if (name := place.parameter or place.module))
        parts = [[part for part in name.split(".") if not part.isdigit()] for name in names]
        wanted = dict.fromkeys(part for held in parts for part in (*held[:1], *held[-2:-1]) if part not in OWN_NAMES)
        found = [place for name in wanted for place in self._reads(name)[:1]]
        for place in met[:1] if not found else ():
            beside = [self.text(os.path.realpath(str(place.file)), (place.line or 0) + by) for by in (-1, 1)]
            names_beside = [hit[1] for text in beside if (hit := re.match(r"\s*self\.(\w+)\s*=", text))]
            found += [read for name in names_beside for read in self._reads(name)[:1]]
        return found[:FULL]

    def _cut(self, met: Mapping[str, tuple[Place, ...]]) -> list[Place]:
        """A line that cuts what an unused part of the model gives off from the gradient."""
        seen = met.get("arch.unused_parameters", ())
        names = {part for place in seen for part in (place.parameter or place.module or "").split(".")} - {""}
        hits = self._hits(Words(lines=(r"\.detach\(",)), seen)
        cuts = [hit for hit in hits if names - {*OWN_NAMES} & {*IDENTIFIER.findall(self.text(*hit))}]
        return [_place(path, line, WORDS["loss.disconnected"].role) for path, line in cuts[:1]]

    def _reads(self, name: str) -> list[Place]:
        wanted = re.compile(rf"\.{re.escape(name)}\b(?!\s*[:=][^=])")
        hits = [
            (path, line) for path, held in self.code.items() for line in held if wanted.search(self.text(path, line))
        ]
        return [_place(path, line, "used here") for path, line in hits]

    def _mask_made(self, met: tuple[Place, ...]) -> list[Place]:
        """Where the mask comes from that the function of the first place applies; plain causal ones are right."""
        scope = self._scope_of(met[0]) if met else None
        trail = Trail(self.project)
        for node in ast.walk(scope.node) if scope is not None else ():
            if scope is not None and isinstance(node, ast.Call) and called(node) in MASKS:
                at = MASKS[called(node)]
                masks = [held.value for held in node.keywords if MASK.match(held.arg or "")] or node.args[at : at + 1]
                for mask in masks:
                    trail.follow(scope, mask.left if isinstance(mask, ast.Compare) else mask, node.lineno)
        texts = [(line, self.text(*line)) for line in trail.lines]
        made = [line for line, text in texts if LEAVES.search(text) and not CAUSAL.search(text)]
        return [_place(*line, WORDS["arch.causal_leak"].role) for line in made[:1]]

    def _called_before(self, met: tuple[Place, ...]) -> list[Place]:
        """The call by which the function that splits had rows changed in another function, the first place."""
        held = [(scope, place.line or 0) for place in met if (scope := self._scope_of(place)) is not None]
        others = [(scope, line) for scope, line in held if scope.node is not held[0][0].node]
        inner = held[0][0].node if others else None
        if not isinstance(inner, Function):
            return []
        outer, split = others[0]
        names = {inner.name}
        for _ in range(FULL):
            calls = [
                node.lineno for node in ast.walk(outer.node) if isinstance(node, ast.Call) and called(node) in names
            ]
            before = [line for line in calls if line <= split]
            before = [line for line in before if getattr(self.scope(outer.path, line), "node", None) is outer.node]
            if before:
                return [_place(outer.path, before[-1], "called before the split here")]
            users = (scope.node for name in names for scope in self.users.get(name, ()))
            names = {node.name for node in users if isinstance(node, Function)}
        return []

    def _called_on(self, met: tuple[Place, ...]) -> list[Place]:
        """What the project's own functions and modules that are called on a line give back."""
        found = []
        for place in met[:1]:
            calls = self.project.calls(str(place.file), place.line or 0) if place.file else ()
            for node in calls:
                for scope in self._meant(called(node)):
                    found += [_place(scope.path, line, "made here") for line, _ in returned(scope.node)][-1:]
        return found[:FULL]

    def _meant(self, name: str) -> list[Scope]:
        """A function of the project, or the forward of the class that an attribute of that name is made of."""
        inits = self.project.functions.get("__init__", ())
        values = [value for scope in inits for attribute, value, _ in named(scope.node) if attribute == f"self.{name}"]
        made = [called(value) for value in values if isinstance(value, ast.Call)]
        owners = {id(held.node) for kind in made for held in self.project.classes.get(kind, ())}
        both = (*self.project.functions.get("forward", ()), *self.project.functions.get("__call__", ()))
        found = [held for held in both if id(held.owner) in owners] or self.project.functions.get(name, [])
        return found if len({id(held.node) for held in found}) == 1 else []

    def _drawn_in_workers(self) -> tuple[Place, ...]:
        """Where the random numbers of a loader's workers begin: what sets them up, the loader, its data set."""
        found = []
        for kind in ("worker_init", "items"):
            for place in self.lines.get(kind, [])[:1]:
                scope = self._scope_of(place)
                whole = scope.owner if scope is not None and scope.owner is not None and kind == "items" else None
                node = whole or (scope.node if scope is not None else None)
                first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
                hits = [
                    line for line in range(first, last + 1) if scope and GENERATOR.search(self.text(scope.path, line))
                ]
                found += [
                    _place(scope.path, line, "random numbers start here") for line in hits[:1] if scope is not None
                ]
        made = [place._replace(role="the loader is created here") for place in self.lines.get("loader", [])[:1]]
        return (*found[:1], *made, *found[1:])

    def _observed(self) -> list[Place]:
        """Where an environment of the user's puts together what the agent sees."""
        found = []
        for name, scopes in self.project.functions.items():
            for scope in scopes:
                methods = (
                    {part.name for part in scope.owner.body if isinstance(part, Function)} if scope.owner else set()
                )
                if OBSERVES.search(name) and "step" in methods:
                    found += [
                        _place(scope.path, line, "observations are created here") for line, _ in returned(scope.node)
                    ][-1:]
        return found[:1]

    def _scope_of(self, place: Place) -> Scope | None:
        return self.scope(os.path.realpath(place.file), place.line) if place.file and place.line else None

    def scope(self, path: str, line: int) -> Scope | None:
        """The function around a line; what stands above its `def` belongs to it."""
        scope = self.project.scope(path, line)
        if self.text(path, line).lstrip().startswith("@"):
            below = next((at for at in range(line, line + 8) if "def " in self.text(path, at)), line)
            scope = self.project.scope(path, below)
        return scope

    def _statement(self, path: str, line: int) -> str:
        """The whole of a statement that stands on several lines."""
        tree = self.project.modules.get(path)
        held = [node for node in ast.walk(tree) if isinstance(node, STATEMENTS)] if tree is not None else []
        spans = [(node.lineno, node.end_lineno or node.lineno) for node in held]
        spans = [span for span in spans if span[0] <= line <= span[1]]
        first, last = max(spans, default=(line, line))
        return " ".join(self.text(path, at) for at in range(first, last + 1))

    def text(self, path: str, line: int) -> str:
        held = self.texts.get(path, [])
        return held[line - 1].partition("#")[0] if 0 < line <= len(held) else ""

    # --- what training can come to

    def _distance(self, scope: Scope) -> int:
        return self.near.get(id(scope.node), FAR + 1) if self.near else 0

    def _near(self) -> dict[int, int]:
        """How many calls away from the line of the backward pass each function is; modules and callers too."""
        starts = [
            scope
            for kind in ("backward", "loss", "trained")
            for place in self.lines.get(kind, [])[:2]
            if (scope := self.project.scope(str(place.file), place.line or 0)) is not None
        ]
        found = {id(scope.node): 0 for scope in starts}
        todo = list(starts)
        while todo:
            scope = todo.pop(0)
            away = found[id(scope.node)] + 1
            for other in self._around(scope) if away <= FAR else ():
                if id(other.node) not in found:
                    found[id(other.node)] = away
                    todo.append(other)
        return found

    def _around(self, scope: Scope) -> Iterator[Scope]:
        """What it calls, and what calls it. Names decide: whose method it is cannot be read."""
        for name in (*sorted(self.names.get(id(scope.node), ())), "forward", "__call__"):
            yield from self.project.functions.get(name, ())
            for held in self.project.classes.get(name, ()):
                for part in held.node.body:  # type: ignore[attr-defined]  # it is a class
                    if isinstance(part, Function) and part.name in ("__init__", "__iter__", "__getitem__"):
                        yield Scope(held.path, part, held.node)  # type: ignore[arg-type]  # see above
        if isinstance(scope.node, Function):
            yield from self.users.get(scope.node.name, ())

    def _mentioned(self) -> None:
        """Which names each function mentions, by which functions each name is mentioned, and the lines with code: what
        texts and comments say does not count."""
        for path, tree in self.project.modules.items():
            lines: set[int] = set()
            todo: list[tuple[ast.AST, Scope]] = [(tree, Scope(path, tree))]
            while todo:
                node, scope = todo.pop()
                name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
                if isinstance(node, CODE):
                    lines |= {node.lineno, node.end_lineno or node.lineno}
                if name:
                    held = self.names.setdefault(id(scope.node), set())
                    if name not in held:
                        held.add(name)
                        self.users.setdefault(name, []).append(scope)
                inside = Scope(path, node) if isinstance(node, Function) else scope
                todo += [(part, inside) for part in ast.iter_child_nodes(node)]
            self.code[path] = sorted(lines)


def _is_known(option: Option, measured: Collection[float]) -> bool:
    """Whether a setting has a value that a clue measured; in a configuration file, also a word in place of a number."""
    value = option.value.strip("\"' ")
    try:
        number = float(value)
    except ValueError:
        return bool(value) and not option.path.endswith(".py")
    return any(abs(number - held) <= 1e-6 * abs(held) for held in measured)


def _place(path: str, line: int, role: str) -> Place:
    folder = os.path.realpath(os.getcwd()) + os.sep
    return Place(os.path.realpath(path).removeprefix(folder), line, role=role or None)
