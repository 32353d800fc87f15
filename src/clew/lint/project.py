"""The files around the one being looked at: modules it imports, and who calls its functions."""

import ast
import os
import re
from collections import OrderedDict
from typing import NamedTuple

from clew.lint.flow import reaching
from clew.lint.index import Class, Def, Module, Scope, Where, index
from clew.lint.source import Unreadable, read, read_bytes

# Bytes of source whose trees are kept; a tree takes some forty times its source. With half of this, files of a large
# project that import each other are parsed half as often again.
KEEP = 10_000_000
MOST_NEIGHBOURS = 60
MOST_CALLS = 12
MOST_FILES = 6
# Libraries are never looked for among the project's files, unless the project is that library.
LIBRARIES = frozenset(
    "torch numpy sklearn pandas jax transformers lightning pytorch_lightning torchvision scipy os sys math random re "
    "json time typing collections functools itertools logging argparse pathlib dataclasses copy warnings abc enum "
    "tensorflow keras matplotlib tqdm datasets accelerate gym gymnasium einops flax optax wandb PIL cv2".split()
)


# A method may be called from any file; in a large project too many of them would have to be asked.
FEW_NEIGHBOURS = 24


class Silence(NamedTuple):
    """A way into a file behind which nothing of interest happens: from how many calls on, by which files, and whether
    callers were searched."""

    deep: int
    reads: frozenset[str]
    wide: bool


class Project:
    """Finds and keeps indexes of files. `files` are those of this run; none of them is ever imported or run."""

    def __init__(self, files: list[str]) -> None:
        self.files = [os.path.abspath(path) for path in files if path.endswith(".py")]
        self.kept: OrderedDict[str, Module | None] = OrderedDict()
        self.sizes: dict[str, int] = {}
        self.listings: dict[str, frozenset[str]] = {}
        self.texts: dict[str, bytes] = {}
        self.roots: dict[str, tuple[str, str]] = {}
        self.neighbours: dict[str, list[str]] = {}
        self.asked: dict[Scope, list[tuple[ast.Call, Where]]] = {}
        self.touched: set[str] = set()
        self.searched = False
        self.files_of: dict[tuple[str, str], tuple[str, list[str]] | None] = {}
        self.mentioned: dict[tuple[str, frozenset[str]], bool] = {}
        self.silent: dict[tuple[str, int, str], Silence] = {}
        self.loud: dict[tuple[str, int, str], int] = {}
        self.onces: dict[tuple[str, str], bool] = {}
        self.held = 0

    def start(self, path: str) -> Module | None:
        """Look at the file at `path` next, which may have been read for another one: forget what was learned for the
        one before, and let go of the trees that were not needed for longest."""
        self.asked = {}
        self.files_of = {}
        self.touched = set()
        self.searched = False
        if len(self.texts) > 4 * MOST_NEIGHBOURS:
            self.texts = {}
        path = os.path.abspath(path)
        known = self.kept.get(path)
        while self.held > KEEP and self.kept:
            oldest, module = self.kept.popitem(last=False)
            self.held -= self.sizes.pop(oldest)
            if module is not None and module is not known:
                module.forget()
        return known

    def keep(self, path: str, module: Module | None, size: int) -> None:
        path = os.path.abspath(path)
        self.kept[path] = module
        self.held += size - self.sizes.get(path, 0)
        self.sizes[path] = size

    def listing(self, folder: str) -> frozenset[str]:
        if folder not in self.listings:
            try:
                self.listings[folder] = frozenset(os.listdir(folder))
            except OSError:
                self.listings[folder] = frozenset()
        return self.listings[folder]

    def root(self, path: str) -> tuple[str, str]:
        """The folder that imports start from, and the file's dotted name below it."""
        path = os.path.abspath(path)
        if path not in self.roots:
            folder, file = os.path.split(path)
            parts = [] if file == "__init__.py" else [os.path.splitext(file)[0]]
            while "__init__.py" in self.listing(folder) and os.path.dirname(folder) != folder:
                folder, name = os.path.split(folder)
                parts.insert(0, name)
            self.roots[path] = (folder, ".".join(parts))
        return self.roots[path]

    def load(self, path: str) -> Module | None:
        """The index of another file, or None when it cannot be read."""
        self.touched.add(path)
        if path in self.kept:
            self.kept.move_to_end(path)
            return self.kept[path]
        size = 0
        made: Module | None = None
        try:
            data = read_bytes(path)
            size = len(data)
            made = index(path, self.root(path)[1], read(path, data).tree, path.endswith("__init__.py"))
        except (Unreadable, RecursionError):
            pass
        self.keep(path, made, size)
        return made

    def member(self, dotted: str, module: Module) -> Module | list[Def] | None:
        """What `dotted` is when a file of the project defines it: a module, or the definitions of a name in one."""
        found = self.file_of(dotted, module)
        return self.inside(*found, module) if found is not None else None

    def file_of(self, dotted: str, module: Module) -> tuple[str, list[str]] | None:
        """The file of the project that `dotted` leads into from a module, and what remains of the name."""
        key = (module.path, dotted)
        if key not in self.files_of:
            root, own = self.root(module.path)
            parts = dotted.split(".")
            found = None
            if parts[0] not in LIBRARIES or own.split(".")[0] == parts[0]:
                here = os.path.dirname(os.path.abspath(module.path))
                above = os.path.dirname(root)
                bases = dict.fromkeys((root, here, above, os.path.dirname(above)))
                found = next((at for base in bases if (at := self.below(base, parts)) is not None), None)
            self.files_of[key] = found
        return self.files_of[key]

    def may_mention(self, dotted: str, module: Module, words: frozenset[str]) -> bool:
        """Whether what `dotted` names may be a function of the project in a file with one of the words. Told from the
        text alone, as parsing it is the dearest thing here: True where the text does not settle it."""
        found = self.file_of(dotted, module)
        if found is None:
            return "." in dotted and self.file_of(dotted.split(".")[0], module) is not None
        path, rest = found
        if path in self.kept or len(rest) != 1:
            return True
        return self.has(path, words) or not self.once(path, rest[0])

    def brings(self, module: Module, word: str) -> bool:
        """Whether a file imports anything from one of the project whose text has the word."""
        words = frozenset((word,))
        for made in (made for defs in module.main.defs.values() for made in defs if made.how == "import"):
            found = self.file_of(made.value, module)
            if found is not None and self.has(found[0], words):
                return True
        return False

    def has(self, path: str, words: frozenset[str]) -> bool:
        """Whether the text of a file has one of the words."""
        self.touched.add(path)
        if (path, words) not in self.mentioned:
            pattern = rb"\b(?:" + b"|".join(os.fsencode(word) for word in sorted(words)) + rb")\b"
            self.mentioned[path, words] = re.search(pattern, self.bytes_of(path)) is not None
        return self.mentioned[path, words]

    def once(self, path: str, name: str) -> bool:
        """Whether a file defines a function or class at its top, and nothing else by that name."""
        if (path, name) not in self.onces:
            self.onces[path, name] = defined_once(self.bytes_of(path), os.fsencode(name))
        return self.onces[path, name]

    def below(self, base: str, parts: list[str]) -> tuple[str, list[str]] | None:
        """The file that the longest part of a dotted name stands for, and what remains of the name."""
        folder = base
        found: tuple[str, list[str]] | None = None
        for at, part in enumerate(parts):
            names = self.listing(folder)
            if f"{part}.py" in names:
                return os.path.join(folder, f"{part}.py"), parts[at + 1 :]
            if part not in names:
                break
            folder = os.path.join(folder, part)
            if "__init__.py" in self.listing(folder):
                found = os.path.join(folder, "__init__.py"), parts[at + 1 :]
        return found

    def inside(self, path: str, rest: list[str], asking: Module) -> Module | list[Def] | None:
        module = self.load(path)
        if module is None or not rest:
            return module
        if len(rest) > 1 or module is asking:
            return None
        defs = module.main.defs.get(rest[0])
        return reaching(defs, Where(module.main.body, 1 << 60)) if defs else None

    # callers

    def callers(self, func: Scope) -> list[tuple[ast.Call, Where]]:
        """Calls of a function, or of the class whose `__init__` it is, in its own file and in those around it."""
        if func not in self.asked:
            self.asked[func] = []  # a function that calls itself asks while being asked
            self.asked[func] = self.found(func)
        return self.asked[func]

    def found(self, func: Scope) -> list[tuple[ast.Call, Where]]:
        module = func.module
        if func.kind == "lambda":
            above = module.up.get(func.node)
            target = above.targets[0] if isinstance(above, ast.Assign) else None
            named = module.calls.get(target.id, []) if isinstance(target, ast.Name) else []
            return [(call, module.where(call)) for call in named if isinstance(call.func, ast.Name)][:MOST_CALLS]
        if func.name in ("forward", "__call__"):
            return []
        name = func.cls.name if func.cls is not None and func.name == "__init__" else func.name
        method = func.cls is not None and func.name != "__init__"
        calls = [
            call
            for call in module.calls.get(name, [])
            if isinstance(call.func, ast.Attribute) == method and not within(call, func, module)
        ]
        if method and sum(func.name in cls.methods for cls in module.classes) > 1:
            calls = [call for call in calls if own(call, func, module)]
        found = [(call, module.where(call)) for call in calls]
        top = func.parent is module.main or (func.name == "__init__" and func.cls is not None)
        if top and not found and not method:
            found = self.elsewhere(module, name)
        elif method and not found and not name.startswith("__") and len(self.around(module.path)) <= FEW_NEIGHBOURS:
            found = self.method_calls(func)
        return found if len(found) <= MOST_CALLS else []

    def method_calls(self, func: Scope) -> list[tuple[ast.Call, Where]]:
        """Calls of a method in other files, on what those files make of its class and keep under a name."""
        if func.cls is None:
            return []
        self.searched = True
        words = os.fsencode(f"{func.cls.name}("), os.fsencode(f".{func.name}(")
        paths = [path for path in self.around(func.module.path) if all(word in self.bytes_of(path) for word in words)]
        found: list[tuple[ast.Call, Where]] = []
        for path in paths[:MOST_FILES]:
            other = self.load(path)
            for call in other.calls.get(func.name, []) if other is not None and other is not func.module else ():
                base = call.func.value if isinstance(call.func, ast.Attribute) else None
                where = other.where(call) if other is not None else None
                if isinstance(base, ast.Name) and where is not None and made_as(base.id, where, func.cls.name):
                    found.append((call, where))
        return found

    def heirs(self, cls: Class) -> list[Class]:
        """Classes that name this one as a base, in its own file or, in a small project, in those around it."""
        found = [one for one in cls.module.classes if names_base(one, cls.name)]
        if found or len(self.around(cls.module.path)) > FEW_NEIGHBOURS:
            return found
        self.searched = True
        words = os.fsencode(f"({cls.name}"), os.fsencode(cls.module.name.rsplit(".", 1)[-1])
        paths = [path for path in self.around(cls.module.path) if all(word in self.bytes_of(path) for word in words)]
        for path in paths[:MOST_FILES]:
            other = self.load(path)
            if other is not None and other is not cls.module:
                found += [one for one in other.classes if names_base(one, cls.name)]
        return found

    def makers(self, cls: Class) -> list[tuple[ast.Call, Where]]:
        """Calls that make instances of a class, in its own file or in those around it."""
        here = [call for call in cls.module.calls.get(cls.name, []) if isinstance(call.func, ast.Name)]
        if here:
            return [(call, cls.module.where(call)) for call in here]
        return self.elsewhere(cls.module, cls.name)[:MOST_CALLS]

    def elsewhere(self, module: Module, name: str) -> list[tuple[ast.Call, Where]]:
        self.searched = True
        words = os.fsencode(name), os.fsencode(module.name.rsplit(".", 1)[-1])
        found: list[tuple[ast.Call, Where]] = []
        seen = 0
        for path in self.around(module.path):
            text = self.bytes_of(path)
            if not all(word in text for word in words):
                continue
            seen += 1
            other = self.load(path) if seen <= MOST_FILES else None
            if other is not None and other is not module:
                found += calls_of(other, module.name.rsplit(".", 1)[-1], name)
        return found

    def neighbours_with(self, path: str, word: str) -> int:
        """How many of the files around mention a word."""
        self.searched = True
        return sum(os.fsencode(word) in self.bytes_of(other) for other in self.around(path))

    def matched_around(self, path: str, wanted: re.Pattern[bytes]) -> bool:
        """Whether any of the files around holds a text of this form."""
        self.searched = True
        return any(wanted.search(self.bytes_of(other)) for other in self.around(path))

    def bytes_of(self, path: str) -> bytes:
        if path not in self.texts:
            try:
                self.texts[path] = read_bytes(path)
            except Unreadable:
                self.texts[path] = b""
        return self.texts[path]

    def around(self, path: str) -> list[str]:
        """The files of this run that may well import `path`: those below the same root, or only those beside it when
        there are too many."""
        path = os.path.abspath(path)
        folder = os.path.dirname(path)
        if folder not in self.neighbours:
            root, _ = self.root(path)
            near = [other for other in self.files if other.startswith(root + os.sep)]
            if len(near) > MOST_NEIGHBOURS:
                start = folder + os.sep
                near = [other for other in near if other.startswith(start) and os.sep not in other[len(start) :]]
            self.neighbours[folder] = near if len(near) <= MOST_NEIGHBOURS else []
        return [other for other in self.neighbours[folder] if other != path]


def defined_once(text: bytes, name: bytes) -> bool:
    """Whether a text defines a function or class of this name at its top, and nothing else by that name."""
    name = re.escape(name)
    made = re.findall(rb"^([ \t]*)(?:async[ \t]+def|def|class)[ \t]+" + name + rb"\b", text, re.MULTILINE)
    return made == [b""] and not re.search(rb"^[ \t]*" + name + rb"[ \t]*[:=]", text, re.MULTILINE)


def names_base(cls: Class, name: str) -> bool:
    return any(
        (base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")) == name for base in cls.node.bases
    )


def within(call: ast.Call, func: Scope, module: Module) -> bool:
    scope: Scope | None = module.where(call).block.scope
    while scope is not None:
        if scope is func:
            return True
        scope = scope.parent
    return False


def own(call: ast.Call, func: Scope, module: Module) -> bool:
    """Whether a method is called on `self` by its own class."""
    base = call.func.value if isinstance(call.func, ast.Attribute) else None
    scope: Scope | None = module.where(call).block.scope
    while scope is not None and scope.cls is None:
        scope = scope.parent
    return isinstance(base, ast.Name) and scope is not None and scope.cls is func.cls and base.id == scope.me


def made_as(name: str, where: Where, cls: str) -> bool:
    """Whether a name was given an instance of a class, by the class's own name."""
    defs = where.block.scope.defs.get(name) or where.block.scope.module.main.defs.get(name, [])
    called = [made.value.func for made in defs if made.how == "=" and isinstance(made.value, ast.Call)]
    return any((func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")) == cls for func in called)


def calls_of(other: Module, module: str, name: str) -> list[tuple[ast.Call, Where]]:
    """Calls in `other` of what it imports as `name` from `module`."""
    found = []
    for local, defs in other.main.defs.items():
        for made in defs:
            if made.how != "import":
                continue
            if made.value.endswith(f"{module}.{name}"):
                found += [call for call in other.calls.get(local, []) if isinstance(call.func, ast.Name)]
            elif made.value == module or made.value.endswith(f".{module}"):
                found += [
                    call
                    for call in other.calls.get(name, [])
                    if isinstance(call.func, ast.Attribute)
                    and isinstance(call.func.value, ast.Name)
                    and call.func.value.id == local
                ]
    return [(call, other.where(call)) for call in found]
