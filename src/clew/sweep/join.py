"""Several tables of runs as one: columns merged as they come, nothing dropped."""

from clew.errors import ClewError
from clew.sweep.table import Table, is_id, stacked


def join(tables: list[Table]) -> Table:
    if not tables:
        raise ClewError("name at least one table of runs.")
    if len(tables) == 1:
        return tables[0]
    names = dict.fromkeys(name for table in tables for name in table.columns)
    rows = sum(table.rows for table in tables)
    columns = {
        name: stacked([(table.rows, table.columns.get(name)) for table in tables], is_id(name)) for name in names
    }
    source = ", ".join(table.source for table in tables[:3]) + (" …" if len(tables) > 3 else "")
    return Table(rows, columns, source, tuple(note for table in tables for note in table.notes))
