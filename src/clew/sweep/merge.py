"""Groups of one sweep that was run in parts, as one group, where nothing shows that they are not one."""

import re

import numpy as np
from numpy.typing import NDArray

from clew.errors import ClewError, did_you_mean
from clew.sweep.roles import Roles, bare, shown
from clew.sweep.table import Table

BASE = "sweep.base"
CODE = re.compile(r"sweep\.code|(git[._])?(commit|sha|hash|revision)|code(_digest|_version)?")


def codes_of(table: Table, roles: Roles, wanted: tuple[str, ...]) -> list[int]:
    """The codes of these groups."""
    if not roles.group:
        raise ClewError(f"{table.source} has no column that names groups; --group-by names one.")
    names = [str(label) for label in table.columns[roles.group].labels]
    for name in wanted:
        if name not in names:
            short = did_you_mean(name, names) or f"; there are {', '.join(names[:8])}."
            raise ClewError(f"{table.source} has no group {name!r}{short}")
    return [names.index(name) for name in wanted]


def merged(table: Table, roles: Roles, wanted: tuple[str, ...]) -> Table:
    """All of `wanted` under the name of the first; a difference in code or base settings is an error that names it."""
    if len(set(wanted)) < 2:
        raise ClewError("--merge takes at least two groups.")
    codes = codes_of(table, roles, wanted)
    held = table.columns[roles.group]
    rows = [held.codes == code for code in codes]
    # A sweep's own digest of its base settings knows better than the columns, in which a part may hold one value only.
    based = BASE in table.columns and not any((table.columns[BASE].codes[one] < 0).any() for one in rows)
    fixed = [name for name in table.columns if CODE.fullmatch(bare(name))] + ([BASE] if based else list(roles.settings))
    for name, one in zip(wanted[1:], rows[1:], strict=True):
        for column in fixed:
            a, b = _values(table, column, rows[0]), _values(table, column, one)
            if len(a) == len(b) == 1 and a != b:
                what = {"sweep.code": "the code", BASE: "the command or metric"}.get(column, shown(column))
                raise ClewError(f"{wanted[0]} and {name} are not one sweep: {what} differs ({a[0]} and {b[0]}).")
    joined = np.where(np.isin(held.codes, codes), np.int32(codes[0]), held.codes).astype(np.int32)
    return table._replace(columns={**table.columns, roles.group: held._replace(codes=joined)})


def _values(table: Table, name: str, rows: NDArray[np.bool_]) -> list[str]:
    held = table.columns[name]
    return [str(held.labels[code])[:20] for code in np.unique(held.codes[rows]) if code >= 0]
