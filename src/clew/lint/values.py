"""What a value is, as far as the source says. What is unknown stays unknown.

Values are asked for, never computed ahead: `Values.of(expression)` follows names to the definitions that reach them,
attributes of `self` to where they are set, calls into functions, methods and modules of the same project, and
parameters to the arguments of their callers. Every question has a limited amount of fuel, so that it always ends.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from clew.lint import fields
from clew.lint.branches import alive, taken
from clew.lint.flow import reaching
from clew.lint.given import argument, default_of, empty, keyed_by, starred, tells
from clew.lint.index import Class, Def, Module, Scope, Where
from clew.lint.networks import networks
from clew.lint.sequences import TRANSPARENT_LAYERS, last_layer
from clew.lint.value import NOTHING, Alternatives, Context, Value, canonical, model_like

# Calls after which the values are still the same values, if in another shape, type or place.
SAME = frozenset(
    "view reshape squeeze unsqueeze flatten unflatten contiguous float double half bfloat16 to cuda cpu type type_as "
    "transpose permute swapaxes movedim t expand expand_as repeat clone requires_grad_ view_as reshape_as mT "
    "narrow select index_select gather chunk split rename refine_names to_dense dropout pin_memory ravel tile astype "
    "unbind refine swapdims cast retain_grad masked_select take_along_dim".split()
)
SAME_FUNCTIONS = frozenset(
    "torch.squeeze torch.unsqueeze torch.flatten torch.reshape torch.transpose torch.permute torch.clone torch.gather "
    "torch.index_select torch.nn.functional.dropout torch.chunk torch.split torch.movedim torch.swapaxes torch.tile "
    "torch.masked_select torch.narrow torch.autograd.Variable torch.compile torch.jit.script torch.nn.DataParallel "
    "torch.nn.parallel.DistributedDataParallel torch.distributed.fsdp.FullyShardedDataParallel "
    "torch.nn.utils.weight_norm torch.nn.utils.spectral_norm torch.nn.utils.parametrizations.weight_norm "
    "torch.nn.utils.parametrizations.spectral_norm copy.deepcopy copy.copy functools.partial "
    "einops.rearrange jax.jit jax.vmap jax.checkpoint jax.remat torch.jit.trace typing.cast".split()
)
LAYERS = {
    "Softmax": "softmax",
    "Softmax2d": "softmax",
    "LogSoftmax": "log_softmax",
    "Sigmoid": "sigmoid",
    "LogSigmoid": "logsigmoid",
    "Linear": "linear",
    "LazyLinear": "linear",
    "Bilinear": "linear",
    "Conv1d": "linear",
    "Conv2d": "linear",
    "Conv3d": "linear",
    "ReLU": "relu",
    "Tanh": "tanh",
}
FUEL = 400
DEPTH = 30
MOST = 8


class Values:
    """Answers what expressions are. `project` finds other files and callers."""

    def __init__(self, project: Any) -> None:
        self.project = project
        self.memo: dict[ast.AST, Alternatives] = {}
        self.fuel = 0
        self.depth = 0
        self.busy: set[tuple[ast.AST, int]] = set()
        self.cuts = 0  # how often a question was left open, so that what rests on it must not be kept
        self.truths: dict[ast.AST, bool | None] = {}
        self.asking: set[ast.AST] = set()
        self.tables: dict[ast.AST, ast.Dict] = {}
        self.roots: dict[Module, list[Class]] = {}

    def of(self, node: ast.AST, module: Module) -> Alternatives:
        """What `node` may be, as seen from its own place."""
        known = self.memo.get(node)
        if known is None:
            if self.depth == 0:
                self.fuel = FUEL
            known = self.value(node, module.where(node), None)
        return known

    def value(self, node: Any, where: Where, context: Context | None) -> Alternatives:
        if context is None and node in self.memo:
            return self.memo[node]
        key = (node, id(context))
        if self.depth == 0:
            self.fuel = FUEL
        if self.fuel <= 0 or self.depth > DEPTH or key in self.busy:
            self.cuts += 1
            return NOTHING
        before = self.cuts
        self.fuel -= 1
        self.depth += 1
        self.busy.add(key)
        try:
            handler = HANDLERS.get(type(node))
            found: Alternatives = handler(self, node, where, context) if handler else NOTHING
        finally:
            self.busy.discard(key)
            self.depth -= 1
        if context is None and (not self.busy or (self.fuel > 0 and self.cuts == before)):
            self.memo[node] = found
        return found

    # names

    def name(self, node: ast.Name, where: Where, context: Context | None) -> Alternatives:
        inner = self.comprehended(node, where)
        if inner is not None:
            return inner
        return self.named(node.id, where, context)

    def comprehended(self, node: ast.Name, where: Where) -> Alternatives | None:
        """A comprehension's own variable."""
        module = where.block.scope.module
        if node.id not in module.comprehended:
            return None
        up = module.up
        at: ast.AST | None = up.get(node)
        while at is not None and isinstance(at, ast.expr | ast.comprehension):
            if isinstance(at, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
                for generator in at.generators:
                    if any(isinstance(part, ast.Name) and part.id == node.id for part in ast.walk(generator.target)):
                        return (Value("element", node=generator.iter, where=where),)
            at = up.get(at)
        return None

    def named(self, name: str, where: Where, context: Context | None) -> Alternatives:
        scope: Scope | None = where.block.scope
        first = True
        while scope is not None:
            if name in scope.defs and (first or scope.kind != "class"):
                at = where if first else Where(scope.body, 1 << 60)
                held = reaching(scope.defs[name], at)
                if len(held) > 1:
                    held = alive(self, held, at, context)
                return self.join(self.defined(made, context) for made in held)
            first = False
            scope = scope.parent
        return (Value("ref", f"builtins.{name}"),)

    def join(self, many: Iterable[Alternatives]) -> Alternatives:
        found: list[Value] = []
        for values in many:
            for value in values:
                if len(found) >= MOST:
                    return NOTHING
                if value not in found:
                    found.append(value)
        return tuple(found) or NOTHING

    def defined(self, made: Def, context: Context | None) -> Alternatives:
        how = made.how
        if how in ("=", "walrus"):
            values = self.value(made.value, made.where, context)
            return self.unpacked(values, made, context) if made.path else values
        if how == "def":
            module = made.where.block.scope.module
            owner = module.functions[made.value]
            if owner.decorators() and not self.plainly_decorated(owner):
                return NOTHING
            return (Value("function", func=owner),)
        if how == "class":
            return (Value("class", cls=made.value),)
        if how == "import":
            return self.imported(made.value, made.where.block.scope.module)
        if how == "param":
            return self.parameter(made, context)
        if how == "for":
            return (Value("element", node=made.value, where=made.where, const=made.path),)
        if how == "aug":
            return (Value("binop", node=made.value, where=made.where),)
        return NOTHING

    def plainly_decorated(self, func: Scope) -> bool:
        """Whether the decorators leave what the function returns alone."""
        for node in func.decorators():
            target = node.func if isinstance(node, ast.Call) else node
            name = (
                target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
            )
            if name not in PLAIN_DECORATORS:
                return False
        return True

    def unpacked(self, values: Alternatives, made: Def, context: Context | None) -> Alternatives:
        found: list[Alternatives] = []
        for value in values:
            at: Alternatives = (value,)
            for step in made.path:
                if (
                    len(at) == 1
                    and at[0].kind == "items"
                    and -len(at[0].items) <= step < len(at[0].items)
                    and step >= 0
                ):
                    item = at[0].items[step]
                    inner = self.inside(at[0], context)
                    at = self.value(item, at[0].where or made.where, inner) if item is not None else NOTHING
                else:
                    at = NOTHING
            found.append(at)
        return self.join(found)

    def inside(self, value: Value, context: Context | None) -> Context | None:
        """The context in which a literal's items were written: that of the function they came out of."""
        return value.const if isinstance(value.const, Context) else context

    def imported(self, dotted: str, module: Module) -> Alternatives:
        found = self.project.member(dotted, module)
        if found is None:
            return (Value("ref", canonical(dotted)),)
        if isinstance(found, Module):
            return (Value("module", module=found),)
        return self.join(self.defined(made, None) for made in found)

    def parameter(self, made: Def, context: Context | None) -> Alternatives:
        func: Scope = made.value
        if func.me == made.name and func.cls is not None:
            if context is not None and context.func is func and context.owner is not None:
                return (context.owner,)
            return (Value("instance", cls=func.cls, const="self"),)
        at = context
        if at is not None and at.func is func:
            given = argument(at.call, func, made.name)
            if given is not None:
                return self.value(given, at.where, at.outer)
            default = default_of(func, made.name)
            return self.value(default, func.body_where(), None) if default is not None else NOTHING
        found: list[Alternatives] = []
        default = default_of(func, made.name)
        spoken = default is not None and not (isinstance(default, ast.Constant) and default.value is None)
        calls = self.project.callers(func)
        for call, where in calls:
            given = argument(call, func, made.name)
            if given is not None:
                found.append(self.value(given, where, None))
            elif spoken and not starred(call):
                found.append(self.value(default, func.body_where(), None))
        known = [values for values in found if values != NOTHING]
        if known:
            return self.join(known)
        if spoken and not calls and func.name not in ("forward", "__call__", "__init__") and tells(default):
            return self.value(default, func.body_where(), None)
        return self.framed(made, func) or (Value("param", made.name, func=func, node=made.node),)

    def framed(self, made: Def, func: Scope) -> Alternatives:
        """What a framework hands to its hook, and what a parameter that is called like a model can only be."""
        if func.cls is not None and made.name == "model" and func.name in ("compute_loss", "training_step"):
            for call, where in self.project.makers(func.cls):
                given = next((word.value for word in call.keywords if word.arg == "model"), None)
                given = given or (call.args[0] if call.args else None)
                if given is not None:
                    return self.value(given, where, None)
        if func.cls is not None and func.name in ("forward", "__call__"):
            return ()
        low = made.name.lower().replace("_", "")
        like = MODEL_NAMES.match(made.name) or low in func.module.lowered()
        if not like or func.module.names.isdisjoint(TRAINS):
            return ()
        roots = networks(self, func.module)
        fits = [cls for cls in roots if cls.name.lower() == low] or (roots if MODEL_NAMES.match(made.name) else [])
        if len(fits) != 1 or fits[0] is func.cls:
            return ()
        return (Value("instance", cls=fits[0], const="guess"),)

    # attributes

    def attribute(self, node: ast.Attribute, where: Where, context: Context | None) -> Alternatives:
        return self.join(self.member(value, node.attr, node, where) for value in self.value(node.value, where, context))

    def member(self, value: Value, name: str, node: ast.AST, where: Where) -> Alternatives:
        if value.kind == "ref":
            return (Value("ref", canonical(f"{value.name}.{name}")),)
        if value.kind == "module" and value.module is not None:
            defs = value.module.main.defs.get(name)
            if defs:
                end = Where(value.module.main.body, 1 << 60)
                return self.join(self.defined(made, None) for made in reaching(defs, end))
            return self.imported(f"{value.module.name}.{name}", value.module)
        if value.cls is not None and value.kind in ("instance", "class"):
            found = self.of_class(value, name)
            if found is not None:
                return found
        held = fields.field(self, value, name)
        if held is not None:
            given: Alternatives = held
            return given
        if value.kind == "made" and value.name in ("parse_args", "parse_known_args") and value.where is not None:
            chosen: Alternatives | None = fields.option(self, value, name)
            if chosen is not None:
                return chosen
        if name == "data" and value.kind in ("made", "attr"):
            return (value,)
        return (Value("attr", name, node, where, owner=value),)

    def of_class(self, value: Value, name: str) -> Alternatives | None:
        assert value.cls is not None
        for cls in self.upwards(value.cls):
            if name in cls.methods:
                func = cls.methods[name]
                if any(isinstance(item, ast.Name) and item.id == "property" for item in func.decorators()):
                    return self.returned(func, None, None, value)
                return (Value("function", func=func, owner=value if value.kind == "instance" else None),)
            if name in cls.attrs:
                return self.join(self.set_on(made, value) for made in cls.attrs[name] if not empty(made))
            if name in cls.body.defs and not (value.kind == "instance" and name in fields.declared(cls)):
                return self.join(self.defined(made, None) for made in cls.body.defs[name])
        return None

    def set_on(self, made: Def, owner: Value) -> Alternatives:
        func = made.where.block.scope
        context = None
        if isinstance(owner.node, ast.Call) and owner.where is not None and func.name == "__init__":
            context = Context(func, owner.node, owner.where, owner, self.inside(owner, None))
        return self.defined(made, context)

    def lineage(self, cls: Class) -> list[Class]:
        """The class and those of its bases that the project defines."""
        return list(self.upwards(cls))

    def upwards(self, cls: Class) -> Iterator[Class]:
        """The same one by one: the file of a base is read only by those whose question its children leave open."""
        found: list[Class] = []
        queue = [cls]
        while queue and len(found) < 12:
            at = queue.pop(0)
            if at in found:
                continue
            found.append(at)
            yield at
            for base in at.node.bases:
                queue += [
                    value.cls for value in self.value(base, at.where, None) if value.kind == "class" and value.cls
                ]

    def bases(self, cls: Class) -> list[str]:
        """Dotted names of the library classes that `cls` descends from; "?" for a base that nothing is known of."""
        found: list[str] = []
        for at in self.lineage(cls):
            for base in at.node.bases:
                target = base.value if isinstance(base, ast.Subscript) else base
                for value in self.value(target, at.where, None):
                    if value.kind == "ref":
                        found.append(value.name)
                    elif value.kind != "class":
                        found.append("?")
        return found

    # calls

    def call(self, node: ast.Call, where: Where, context: Context | None) -> Alternatives:
        called = self.value(node.func, where, context)
        return self.join(self.result(value, node, where, context) for value in called)

    def result(self, called: Value, node: ast.Call, where: Where, context: Context | None) -> Alternatives:
        kind = called.kind
        if kind == "made" and called.name.startswith(("torchvision.models.", "timm.", "models.")):
            head = self.replaced_head(called, node)
            return self.join(self.result(value, node, where, context) for value in head) if head else NOTHING
        if kind == "ref":
            return self.library(called.name, node, where, context)
        if kind == "class" and called.cls is not None:
            return (Value("instance", cls=called.cls, node=node, where=where, const=context),)
        if kind == "function" and called.func is not None:
            return self.returned(called.func, node, Place(where, context), called.owner)
        if kind == "instance":
            return self.applied(called, node, where, context)
        if kind == "made" and called.name == "collections.namedtuple":
            names = self.words(called)
            return (Value("instance", "namedtuple", node, where, const=context, items=names),)
        if kind == "attr":
            if called.name == "get" and called.owner is not None and called.owner.kind == "items" and node.args:
                known, key = self.word(node.args[0], where, context)
                held = self.item(called.owner, key, where, context) if known else NOTHING
                return held if held != NOTHING or len(node.args) < 2 else self.value(node.args[1], where, context)
            if called.name in SAME and isinstance(node.func, ast.Attribute):
                return self.value(node.func.value, where, context)
            if called.name in ("train", "eval") and called.owner is not None and model_like(called.owner):
                return (called.owner,)
            return (Value("made", called.name, node, where, owner=called.owner),)
        return NOTHING

    def replaced_head(self, called: Value, node: ast.Call) -> Alternatives:
        """The layer that a library's model was given as its last: `model.fc = nn.Sequential(...)`."""
        made = called.where
        if made is None or not isinstance(node.func, ast.Name):
            return ()
        found: Alternatives = ()
        for target, value, at in made.block.scope.attr_sets:
            named = isinstance(target.value, ast.Name) and target.value.id == node.func.id
            if named and target.attr in ("fc", "classifier", "head", "heads") and value is not None:
                found = self.value(value, at, None)
        return found

    def library(self, name: str, node: ast.Call, where: Where, context: Context | None) -> Alternatives:
        if name in SAME_FUNCTIONS and node.args:
            return self.value(node.args[0], where, context)
        if name == "builtins.super":
            func: Scope | None = where.block.scope
            while func is not None and func.cls is None:
                func = func.parent
            bases = [value.cls for cls in ([func.cls] if func and func.cls else []) for value in self.class_bases(cls)]
            return (Value("instance", cls=bases[0]),) if bases and bases[0] is not None else NOTHING
        last = name.rsplit(".", 1)[-1]
        if name in fields.TABLES:
            made = fields.table(node, self.tables)
            if made is not None:
                return (Value("items", node=made, where=where, items=tuple(made.values), const=context),)
        if name == "builtins.getattr" and len(node.args) >= 2:
            known, word = self.word(node.args[1], where, context)
            if not known or not isinstance(word, str):
                return NOTHING
            return self.join(
                self.member(value, word, node, where) for value in self.value(node.args[0], where, context)
            )
        if last[:1].isupper():
            return (Value("instance", name, node, where, const=context),)
        if name.startswith("torch.") and "." not in name[6:].replace("nn.functional.", "").replace("special.", ""):
            return (Value("made", last, node, where, const=name),)
        return (Value("made", name, node, where, const=name),)

    def class_bases(self, cls: Class) -> list[Value]:
        return [
            value for base in cls.node.bases for value in self.value(base, cls.where, None) if value.kind == "class"
        ]

    def returned(self, func: Scope, node: ast.Call | None, at: "Place | None", owner: Value | None) -> Alternatives:
        if func.yields or isinstance(func.node, ast.AsyncFunctionDef):
            return NOTHING
        context = Context(func, node, at.where, owner, at.context) if node is not None and at is not None else None
        found: list[Alternatives] = []
        for given, where in func.returns[:MOST]:
            way = taken(self, where.block, [func.body], context) if len(func.returns) > 1 else None
            if way is False:
                continue
            values = self.value(given, where, context)
            if isinstance(given, ast.Tuple | ast.List | ast.Dict):
                values = tuple(
                    Value("items", node=value.node, where=value.where, items=value.items, const=context)
                    if value.kind == "items"
                    else value
                    for value in values
                )
            found.append(values)
            if way is True:
                break  # nothing after it is reached
        return self.join(found) if found else (Value("const", const=None),)

    def applied(self, called: Value, node: ast.Call, where: Where, context: Context | None) -> Alternatives:
        """What comes out of calling an instance: of a layer, of a module's forward."""
        if called.cls is not None:
            for name in ("forward", "__call__", "call"):
                found = self.of_class(called, name)
                if found and found[0].kind == "function" and found[0].func is not None:
                    return self.returned(found[0].func, node, Place(where, context), called)
            if called.const == "self":
                # A base class that leaves forward to its only heir.
                heirs = [cls for cls in self.project.heirs(called.cls) if "forward" in cls.methods]
                if len(heirs) == 1:
                    heir = Value("instance", cls=heirs[0], const="self")
                    return self.returned(heirs[0].methods["forward"], node, Place(where, context), heir)
            return NOTHING
        last = called.name.rsplit(".", 1)[-1]
        if not called.name.startswith("torch.nn."):
            return (Value("made", f"{called.name}()", node, where, owner=called),)
        if last in LAYERS:
            return (Value("made", LAYERS[last], node, where, owner=called),)
        if last in TRANSPARENT_LAYERS and node.args:
            return self.value(node.args[0], where, context)
        if last == "Sequential" and called.where is not None:
            layer = last_layer(self, called, context)
            return self.join(self.result(value, node, where, context) for value in layer)
        return (Value("made", f"{called.name}()", node, where, owner=called),)

    # other expressions

    def literal(self, node: Any, where: Where, context: Context | None) -> Alternatives:
        items = tuple(node.values) if isinstance(node, ast.Dict) else tuple(node.elts)
        return (Value("items", node=node, where=where, items=items, const=context),)

    def constant(self, node: ast.Constant, _: Where, __: Context | None) -> Alternatives:
        return (Value("const", const=node.value, node=node),)

    def arithmetic(self, node: Any, where: Where, context: Context | None) -> Alternatives:
        kind = "binop" if isinstance(node, ast.BinOp) else "unop"
        return (Value(kind, node=node, where=where, const=context),)

    def compared(self, node: ast.Compare, where: Where, _: Context | None) -> Alternatives:
        return (Value("made", "compare", node, where),)

    def either(self, node: ast.IfExp, where: Where, context: Context | None) -> Alternatives:
        return self.join(self.value(part, where, context) for part in (node.body, node.orelse))

    def chosen(self, node: ast.BoolOp, where: Where, context: Context | None) -> Alternatives:
        """`given or Default()`: any of them that is something."""
        found = [self.value(part, where, context) for part in node.values]
        kept = [
            values
            for values in found
            if not all(
                value.kind in ("param", "unknown") or (value.kind == "const" and not value.const) for value in values
            )
        ]
        return self.join(kept) if isinstance(node.op, ast.Or) and kept else NOTHING

    def subscript(self, node: ast.Subscript, where: Where, context: Context | None) -> Alternatives:
        found: list[Alternatives] = []
        for value in self.value(node.value, where, context):
            known, index = isinstance(node.slice, ast.Constant), getattr(node.slice, "value", None)
            if value.kind in ("items", "instance"):
                known, index = self.word(node.slice, where, context)
            if value.kind == "items" and isinstance(node.slice, ast.Slice) and not isinstance(value.node, ast.Dict):
                found.append((value,))
            elif value.kind == "items":
                found.append(self.item(value, index, where, context) if known else self.any_of(value, context))
            elif value.kind == "instance" and value.name in fields.HOLDERS and isinstance(value.node, ast.Call):
                found.append(self.held(value, index, where, context))
            elif value.kind == "instance" and isinstance(index, str):
                held = fields.field(self, value, index)
                found.append(held if held is not None else NOTHING)
            elif value.kind in ("made", "binop", "unop"):
                found.append((value,) if not isinstance(index, str) else NOTHING)
            else:
                found.append(NOTHING)
        return self.join(found)

    def word(self, node: ast.expr, where: Where, context: Context | None) -> tuple[bool, Any]:
        """The constant that an expression is, if it is one."""
        if isinstance(node, ast.Constant):
            return True, node.value
        if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call):
            return False, None
        values = self.value(node, where, context)
        if len(values) == 1 and values[0].kind == "const":
            return True, values[0].const
        return False, None

    def words(self, made: Value) -> tuple[str, ...]:
        """The names of a namedtuple."""
        given = made.node.args[1] if len(made.node.args) > 1 else None
        if isinstance(given, ast.Constant) and isinstance(given.value, str):
            return tuple(given.value.replace(",", " ").split())
        if isinstance(given, ast.List | ast.Tuple):
            return tuple(str(item.value) for item in given.elts if isinstance(item, ast.Constant))
        return ()

    def any_of(self, value: Value, context: Context | None) -> Alternatives:
        """What a table holds under a key that is not known: any of its values."""
        if not isinstance(value.node, ast.Dict) or value.where is None or len(value.items) > MOST:
            return NOTHING
        inner = self.inside(value, context)
        return self.join(self.value(item, value.where, inner) for item in value.items)

    def held(self, value: Value, index: Any, where: Where, context: Context | None) -> Alternatives:
        """An entry of a ModuleDict or ModuleList that was written out."""
        given = value.node.args[0] if value.node.args else None
        inner = self.inside(value, context)
        for table in self.value(given, value.where or where, inner) if given is not None else ():
            if table.kind == "items":
                known = index is not None
                return self.item(table, index, where, inner) if known else self.any_of(table, inner)
        return NOTHING

    def item(self, value: Value, index: Any, where: Where, context: Context | None) -> Alternatives:
        inner, at = self.inside(value, context), value.where or where
        if isinstance(value.node, ast.Dict):
            for key, given in zip(value.node.keys, value.node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == index and index is not None:
                    return self.value(given, at, inner)
            return self.put(value, index, context) if value.items else self.registered(value, index, context)
        elif isinstance(index, int) and not isinstance(index, bool) and -len(value.items) <= index < len(value.items):
            return self.value(value.items[index], at, inner)
        return NOTHING

    def put(self, value: Value, index: Any, context: Context | None) -> Alternatives:
        """What was set under a key after a table was made: `losses["ce"] = nn.CrossEntropyLoss()`."""
        if value.where is None:
            return NOTHING
        scope = value.where.block.scope
        found: list[Alternatives] = []
        for target, given, at in scope.module.subscript_sets:
            if not isinstance(target.slice, ast.Constant) or target.slice.value != index or at.block.scope is not scope:
                continue
            base = target.value
            defs = scope.defs.get(base.id, []) if isinstance(base, ast.Name) else []
            if isinstance(given, ast.expr) and any(made.value is value.node for made in defs):
                found.append(self.value(given, at, self.inside(value, context)))
        return self.join(found)

    def registered(self, value: Value, index: Any, context: Context | None) -> Alternatives:
        """What decorators put into an empty table: @register("mlp") class MLP, where register fills the table."""
        found = self.put(value, index, context)
        if found != NOTHING or value.where is None or not isinstance(index, str):
            return found
        module = value.where.block.scope.module
        main = module.main
        tables = {name for name, defs in main.defs.items() if any(made.value is value.node for made in defs)}
        fills = set()
        for target, _, at in module.subscript_sets:
            base = target.value
            scope: Scope | None = at.block.scope
            while isinstance(base, ast.Name) and base.id in tables and scope is not None and scope is not main:
                fills.add(scope.name)
                scope = scope.parent
        made_by: list[Alternatives] = []
        for cls in module.classes if fills else ():
            made_by += [(Value("class", cls=cls),) for one in cls.node.decorator_list if keyed_by(one, fills, index)]
        for scope in module.scopes if fills else ():
            decorators = scope.decorators()
            made_by += [(Value("function", func=scope),) for one in decorators if keyed_by(one, fills, index)]
        return self.join(made_by)

    def within(self, node: Any, where: Where, context: Context | None) -> Alternatives:
        return self.value(node.value, where, context)

    def anonymous(self, node: ast.Lambda, where: Where, _: Context | None) -> Alternatives:
        return (Value("function", func=where.block.scope.module.functions[node]),)


class Place(NamedTuple):
    """Where a call stands, and how we came there."""

    where: Where
    context: Context | None


PLAIN_DECORATORS = frozenset(
    "no_grad inference_mode staticmethod classmethod override torch_function cached lru_cache cache jit compile script "
    "enable_grad autocast custom_fwd typechecked jaxtyped beartype record_function partial wraps abstractmethod "
    "deprecate_kwarg can_return_tuple add_start_docstrings_to_model_forward replace_return_docstrings auto_docstring "
    "add_code_sample_docstrings export property".split()
)
HANDLERS: dict[type, Any] = {
    ast.Name: Values.name,
    ast.Attribute: Values.attribute,
    ast.Call: Values.call,
    ast.List: Values.literal,
    ast.Tuple: Values.literal,
    ast.Set: Values.literal,
    ast.Dict: Values.literal,
    ast.Constant: Values.constant,
    ast.BinOp: Values.arithmetic,
    ast.UnaryOp: Values.arithmetic,
    ast.Compare: Values.compared,
    ast.IfExp: Values.either,
    ast.BoolOp: Values.chosen,
    ast.Subscript: Values.subscript,
    ast.Await: Values.within,
    ast.Starred: Values.within,
    ast.NamedExpr: Values.within,
    ast.Lambda: Values.anonymous,
}


TRAINS = frozenset(("backward", "manual_backward", "zero_grad", "training_step", "compute_loss"))
MODEL_NAMES = re.compile(r"^(model|net|network|module|classifier|policy_net|nn_model)$", re.I)
