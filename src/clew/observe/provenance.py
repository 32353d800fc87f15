"""Notes what scikit-learn, pandas and imbalanced-learn do to the data on its way to tensors.

Every patched function calls the original with the very same arguments and returns what it returned; looking happens
around it, draws no random number, copies what it keeps, and swallows every error of its own.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from clew.observe import by_hand, coded, files
from clew.observe.encoded import encoded
from clew.observe.guard import Unwarned, release
from clew.observe.ledger import CASTS, FRAMES, LEDGER, SPLITS, Call, Cast, Frame, Split
from clew.observe.patches import hide, unframe
from clew.observe.places import users_place
from clew.observe.rows import Sampled, rows_in, sampled
from clew.observe.times import order_in_time

CLASSES = (
    "sklearn.preprocessing",
    "sklearn.impute",
    "sklearn.feature_selection",
    "sklearn.decomposition",
    "sklearn.feature_extraction.text",
    "sklearn.compose",
)
RESAMPLERS = ("imblearn.over_sampling", "imblearn.under_sampling", "imblearn.combine")
WAITED_FOR = (*CLASSES, *RESAMPLERS, "sklearn.model_selection", "sklearn.utils")
READERS = ("read_csv", "read_table", "read_parquet", "read_feather", "read_excel", "read_json", "read_pickle")
NATIVE = {
    "polars": ("read_csv", "read_parquet", "read_ipc", "read_ndjson", "scan_csv", "scan_parquet", "scan_ndjson"),
    "pyarrow.parquet": ("read_table", "read_pandas"),
    "pyarrow.feather": ("read_table", "read_feather"),
}
"""Readers that open files in native code."""
CATEGORIES = {  # these learn at most which categories there are
    "LabelEncoder",
    "LabelBinarizer",
    "MultiLabelBinarizer",
    "OneHotEncoder",
    "OrdinalEncoder",
    "Normalizer",
    "Binarizer",
    "FunctionTransformer",
    "PolynomialFeatures",
    "HashingVectorizer",
}
LARGE = 5_000_000
WIDEST = 4096
MARK = "_clew"  # on a wrapper, so that nothing is wrapped twice

Args = tuple[Any, ...]
Options = dict[str, Any]
Before = Callable[[Args, Options], Any]
After = Callable[[Any, Args, Options, Any], None]

_fits: dict[int, tuple[weakref.ref[Any], int]] = {}
_inside = threading.local()
_process = os.getpid()


def install(name: str, module: ModuleType, recorder: Any = None) -> None:
    """Called after `name` was imported. What is imported later is waited for."""
    del recorder  # tables are read before torch is imported: the ledger is there from the start
    if name in ("sklearn", "imblearn"):
        from clew.observe.start import AfterImport

        later = [held for held in WAITED_FOR if held.startswith(f"{name}.") and held not in sys.modules]
        for held in WAITED_FOR:
            if held.startswith(f"{name}.") and held in sys.modules:
                _patch(held, sys.modules[held])
        if later:
            sys.meta_path.insert(0, AfterImport(later, _patch))
    else:
        _patch(name, module)


def _patch(name: str, module: ModuleType) -> None:
    try:
        if name == "pandas":
            coded.install(module)
            for reader in READERS:
                _replace(module, reader, functools.partial(_reads, name), _note_frame)
            _replace(module, "concat", _nothing, _note_concat)
            _replace_method(module.DataFrame, "sample", _nothing, _note_sample)
            _replace_method(module.DataFrame, "drop", _nothing, _note_drop)
            _replace_method(module.DataFrame, "_getitem_bool_array", _nothing, _note_mask)
            for kind in (module.DataFrame, module.Series):
                _replace_method(kind, "astype", _nothing, _note_cast)
        elif name in NATIVE:
            for reader in NATIVE[name]:
                _replace(module, reader, functools.partial(_reads, name.partition(".")[0]), _said)
        elif name == "h5py":
            _replace_method(module.File, "__init__", _reads_own, _said)
        elif name == "sklearn.model_selection":
            _replace(module, "train_test_split", _nothing, _note_split)
        elif name == "sklearn.utils":
            _replace(module, "resample", _nothing, _note_resample)
        elif name in ("torch", "torch.utils.data"):
            _replace(sys.modules["torch.utils.data"], "random_split", _nothing, _note_random_split)
        elif name in CLASSES or name in RESAMPLERS:
            for kind in {held for held in vars(module).values() if isinstance(held, type)}:
                for method in ("fit_resample",) if name in RESAMPLERS else ("fit", "transform", "fit_transform"):
                    _replace_method(kind, method, _came, functools.partial(_note_call, method))
    except BaseException as error:  # noqa: BLE001  # the script comes first: without its notes a run is less understood
        release(error)
        LEDGER.failed(error)


def _replace(module: ModuleType, name: str, before: Before, after: After) -> None:
    """Put a wrapper where a function is looked up: in the module at hand and in the one that defines it."""
    original = getattr(module, name, None)
    if not isinstance(original, FunctionType) or hasattr(original, MARK):
        return
    wrapper = _around(original, before, after)
    for owner in (module, sys.modules.get(original.__module__)):
        if owner is not None and getattr(owner, name, None) is original:
            setattr(owner, name, wrapper)


def _replace_method(kind: type, name: str, before: Before, after: After) -> None:
    """Only plain functions: a method that exists on some conditions only has to stay the descriptor it is."""
    original = next((held.__dict__[name] for held in kind.__mro__ if name in held.__dict__), None)
    if isinstance(original, FunctionType) and not hasattr(original, MARK):
        setattr(kind, name, _around(original, before, after))


def _around(original: Any, before: Before, after: After) -> Any:
    """The original, with a look before and after. Calls inside a call are part of it and are not looked at."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        depth = getattr(_inside, "depth", 0)
        looks = depth == 0 and os.getpid() == _process and LEDGER.may_look()
        held = _quietly(before, args, kwargs) if looks else None
        _inside.depth = depth + 1
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            unframe(error)
            raise
        finally:
            _inside.depth = depth
        if looks:
            _quietly(after, held, args, kwargs, result)
        return result

    setattr(wrapper, MARK, True)
    return hide(functools.wraps(original)(wrapper))


def _quietly(note: Callable[..., Any], *args: Any) -> Any:
    """Nothing that goes wrong here may reach the script."""
    try:
        with Unwarned():
            return note(*args)
    except BaseException as error:  # noqa: BLE001  # see above
        release(error)
        LEDGER.failed(error)
        return None


def _nothing(args: Args, kwargs: Options) -> None:
    del args, kwargs


# --- methods that learn from rows or change them


def _table(args: Args, kwargs: Options) -> Any:
    return args[1] if len(args) > 1 else kwargs.get("X", kwargs.get("raw_documents"))


def _came(args: Args, kwargs: Options) -> Sampled | None:
    """Read before the call, because some estimators work in place."""
    return sampled(_table(args, kwargs))


def _note_call(name: str, came: Sampled | None, args: Args, kwargs: Options, result: Any) -> None:
    if came is None:
        return
    estimator, table = args[0], _table(args, kwargs)
    number = LEDGER.next_number()
    if name != "transform":
        if len(_fits) > 1024:
            _fits.clear()
        _fits[id(estimator)] = (weakref.ref(estimator), number)
    held = _fits.get(id(estimator))
    fit = held[1] if held is not None and held[0]() is estimator else -1
    went = None
    if name == "fit_resample":
        went = sampled(result[0])
    elif name == "fit":
        went = _chosen(estimator, table, came)
    elif rows_in(result) == came.total:
        went = sampled(result, came.stride)
    columns = tuple(str(column) for column in table.columns) if hasattr(table, "columns") else ()
    if name in ("fit", "fit_transform"):
        _quietly(coded.encoder, estimator, table)
    kind = "resample" if name == "fit_resample" else name
    what = type(estimator).__name__
    LEDGER.add(Call(number, kind, what, learns(estimator), fit, users_place(), came, went, columns))


def _chosen(estimator: Any, table: Any, came: Sampled) -> Sampled | None:
    """The columns that a selector keeps: scripts often take them from the table by themselves."""
    if not hasattr(estimator, "get_support") or not hasattr(table, "shape"):
        return None
    support = estimator.get_support()
    return sampled(table.loc[:, support] if hasattr(table, "loc") else table[:, support], came.stride)


def learns(estimator: Any) -> bool:
    """Whether a fit takes something from the rows that could leak: more than a list of categories."""
    for name in ("transformers", "steps"):
        inner = getattr(estimator, name, None)
        if isinstance(inner, list):
            return any(learns(item[1]) for item in inner if len(item) > 1 and hasattr(item[1], "fit"))
    return type(estimator).__name__ not in CATEGORIES


# --- functions


def _note_split(held: None, args: Args, kwargs: Options, result: Any) -> None:
    del held
    _add_split("train_test_split", args, result, bool(kwargs.get("shuffle", True)))
    found = (
        encoded(args[0], (*args[1:], kwargs.get("stratify")), users_place()) if len(LEDGER.encoded) < SPLITS else None
    )
    if found is not None:
        LEDGER.encoded.append(found)


def _add_split(what: str, arrays: Args, parts: Any, shuffled: bool) -> None:
    if len(LEDGER.splits) >= SPLITS or not arrays:
        return
    number, first, training, held_out = LEDGER.next_number(), arrays[0], parts[0], parts[1]
    by_columns = {}
    if hasattr(first, "columns"):
        known = {str(column): column for column in first.columns}
        for names in LEDGER.named_columns():
            if len(names) < len(known) and all(name in known for name in names):
                chosen = [known[name] for name in names]
                pair = sampled(training[chosen]), sampled(held_out[chosen])
                if pair[0] is not None and pair[1] is not None:
                    by_columns[names] = (pair[0], pair[1])
    in_time = (_quietly(order_in_time, arrays) or "") if shuffled else ""
    readable = any(len(getattr(table, "shape", ())) > 1 or hasattr(table, "iloc") for table in arrays)
    both = _quietly(sampled, training), _quietly(sampled, held_out)
    LEDGER.splits.append(Split(number, what, shuffled, users_place(), *both, by_columns, in_time, readable))


def _note_random_split(held: None, args: Args, kwargs: Options, result: Any) -> None:
    """Only a data set made of tensors can be looked at without calling it."""
    del held
    tensors = getattr(args[0] if args else kwargs.get("dataset"), "tensors", None)
    if not isinstance(tensors, tuple) or len(result) < 2 or any(part.device.type != "cpu" for part in tensors):
        return
    arrays = tuple(part.detach().numpy() for part in tensors)
    rows = [arrays[0][list(part.indices)] for part in result[:2]]
    _add_split("random_split", arrays, rows, True)


def _note_resample(held: None, args: Args, kwargs: Options, result: Any) -> None:
    del held
    if kwargs.get("replace", True) and args:
        _add_copies("resample", args[0], result[0] if len(args) > 1 else result)


def _note_sample(held: None, args: Args, kwargs: Options, result: Any) -> None:
    del held
    if args[3] if len(args) > 3 else kwargs.get("replace", False):
        _add_copies("sample", args[0], result)
    else:
        by_hand.sampled_from(args[0], result)


def _note_mask(held: None, args: Args, kwargs: Options, result: Any) -> None:
    del held, kwargs, result
    mask = by_hand.masked(args[0], args[1])
    if mask is not None:
        _add_by_hand("a random mask", args[0], mask)


def _note_drop(held: None, args: Args, kwargs: Options, result: Any) -> None:
    del held, result
    labels = kwargs.get("index", kwargs.get("labels", args[1] if len(args) > 1 else None))
    drawn = None if labels is None else by_hand.dropped(args[0], labels)
    if drawn is not None:
        _add_by_hand("sample and drop", args[0], drawn)


def _add_by_hand(what: str, table: Any, mask: Any) -> None:
    """Only a random split of series in time is of interest."""
    in_time = by_hand.random_over_time(table, mask) if len(LEDGER.splits) < SPLITS else ""
    if in_time:
        parts = sampled(table.iloc[mask.nonzero()[0]]), sampled(table.iloc[(~mask).nonzero()[0]])
        LEDGER.splits.append(Split(LEDGER.next_number(), what, True, users_place(), *parts, {}, in_time, True))


def _note_concat(held: None, args: Args, kwargs: Options, result: Any) -> None:
    """Only when a later table repeats rows of the first, as in making rare rows more frequent."""
    del held
    tables = args[0] if args else kwargs.get("objs")
    if not isinstance(tables, list | tuple) or len(tables) < 2 or rows_in(result) <= rows_in(tables[0]):
        return
    first, later = sampled(tables[0]), sampled(tables[1])
    if first is not None and later is not None and first.share_of(later.digests) > 0.9:
        _add_copies("concat", tables[0], result)


def _add_copies(what: str, table: Any, result: Any) -> None:
    number = LEDGER.next_number()
    LEDGER.add(Call(number, "resample", what, True, -1, users_place(), sampled(table), sampled(result)))


def _note_cast(held: None, args: Args, kwargs: Options, result: Any) -> None:
    """Integers that a narrower type cannot hold wrap around without a word."""
    del held, kwargs
    before = args[0] if args[0].ndim == 2 else args[0].to_frame()
    after = result if result.ndim == 2 else result.to_frame()
    names, changed = [], 0
    for column in range(min(before.shape[1], WIDEST)):
        came, went = before.iloc[:, column].dtype, after.iloc[:, column].dtype
        if came == went or getattr(came, "kind", "") not in "iuf" or getattr(went, "kind", "") not in "iu":
            continue
        values, size = before.iloc[:, column].to_numpy(), 8 * went.itemsize
        low, high = (-(2 ** (size - 1)), 2 ** (size - 1)) if went.kind == "i" else (0, 2**size)
        outside = int(((values < low) | (values >= high)).sum())
        if outside:
            names.append(str(before.columns[column]))
            changed += outside
    if names and len(LEDGER.casts) < CASTS:
        what = f"astype({after[names[0]].dtype}) of {', '.join(names[:4])}"
        LEDGER.casts.append(Cast(what, changed, len(before) * len(names), users_place()))


def _reads(library: str, args: Args, kwargs: Options) -> None:
    files.told(args[0] if args else next(iter(kwargs.values()), None), library)


def _reads_own(args: Args, kwargs: Options) -> None:
    files.told(args[1] if len(args) > 1 else kwargs.get("name"), "h5py")


def _said(held: Any, args: Args, kwargs: Options, result: Any) -> None:
    del held, args, kwargs, result


def _note_frame(held: None, args: Args, kwargs: Options, result: Any) -> None:
    del held, kwargs
    if len(LEDGER.frames) >= FRAMES or not hasattr(result, "columns") or getattr(result, "ndim", 0) != 2:
        return
    part = result.iloc[:: max(1, result.size // LARGE)]
    missing = part.isna().sum()
    gaps = tuple((str(name), int(count)) for name, count in zip(part.columns, missing, strict=True) if count)
    floats = part.select_dtypes("float")
    endless = floats.isin([float("inf"), float("-inf")]).sum()
    infinite = tuple((str(name), int(count)) for name, count in zip(floats.columns, endless, strict=True) if count)
    path = args[0] if args else ""
    file = os.path.basename(os.fspath(path)) if isinstance(path, str | os.PathLike) else "a table"
    LEDGER.frames.append(Frame(file, len(part), gaps, users_place(), infinite))


__all__ = ["LEDGER", "WAITED_FOR", "install"]
