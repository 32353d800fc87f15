"""A random search, read: which parameters mattered, where to look next, whether the best setting stands on a cliff."""

from clew.errors import ClewError
from clew.report.sweep_search_page import CliffRow, ImportanceRow, RangeRow, SearchesView, SearchView
from clew.report.text import number
from clew.sweep.cells import Runs, varying
from clew.sweep.importance import LEAST_SETTINGS, Cliff, Narrowed, Settings, cliffs, narrowed, settings_of, shares
from clew.sweep.judge import split
from clew.sweep.prepare import Request, goal_of, prepare
from clew.sweep.roles import known, shown
from clew.sweep.table import Table

ALPHA = 0.05


def search(table: Table, request: Request, params: tuple[str, ...] = ()) -> SearchesView:
    """`params` are the parameters to weigh; without them all that vary."""
    runs, metric = prepare(table, request)
    goal, why = goal_of(request, metric)
    wanted = [known(table, name, "parameter") for name in params]
    found = []
    for name, part in split(runs):
        names = wanted or varying(part)
        if names:
            found.append(_group(name, part, names, request, 1.0 if goal == "max" else -1.0))
    if not found:
        raise ClewError(f"no parameter varies in {table.source}; --param names the columns to weigh.")
    return SearchesView(metric, goal, why, table.source, tuple(found), runs.notes)


def _group(name: str, runs: Runs, names: list[str], request: Request, sign: float) -> SearchView:
    held = settings_of(runs, names, sign)
    held = held._replace(names=tuple(map(shown, held.names)))
    weighed = shares(held, request.seed)
    best = max(range(len(held.score)), key=lambda at: float(held.score[at]))
    rows = tuple(
        ImportanceRow(one.name, float(one.share), (one.low, one.high), one.p, one.p <= ALPHA, held.columns[at][best])
        for at, one in enumerate(weighed)
    )
    ranges = tuple(_range(narrowed(held, at)) for at, row in enumerate(rows) if row.mattered)
    steep = tuple(_cliff(one) for one in cliffs(held))
    says = _says(held, rows)
    return SearchView(
        name, len(held.score), runs.table.rows, int(runs.crashed.sum()), rows, ranges, steep, says, _notes(held)
    )


def _says(held: Settings, rows: tuple[ImportanceRow, ...]) -> str:
    mattered = [row for row in sorted(rows, key=lambda one: one.p) if row.mattered]
    if not mattered:
        least = min(row.p for row in rows)
        return (
            f"None of {len(rows)} parameters can be told from noise over {len(held.score)} settings (smallest "
            f"adjusted p {least:.2f}). No range is narrowed: the best setting may be luck."
        )
    told = ", ".join(f"{row.name} (share {row.share:.2f}, {row.ci[0]:.2f} to {row.ci[1]:.2f})" for row in mattered)
    rest = [row.name for row in rows if not row.mattered]
    left = f" Nothing can be told of {', '.join(rest)}: keep the whole range, or fix it." if rest else ""
    return f"Mattered: {told}.{left}"


def _notes(held: Settings) -> tuple[str, ...]:
    few = len(held.score) < 3 * LEAST_SETTINGS
    once = float(held.seeds.max(initial=0.0)) <= 1.0
    notes = []
    if few:
        notes.append(f"{len(held.score)} settings show only strong effects; 30 or more are usual.")
    if once:
        notes.append("every setting was run once: a lucky seed and a good setting look the same.")
    return tuple(notes)


def _range(found: Narrowed) -> RangeRow:
    if found.low is None or found.high is None:
        words = ", ".join(f"{word} ({top} of the best, {tried} tried)" for word, top, tried in found.words)
        says = f"{found.name}: the best {found.carried} of {found.of} settings have {words}."
        return RangeRow(*found, says)
    chance = found.by_chance if found.by_chance is not None else 1.0
    edge = f" It reaches {found.edge} value tried: look beyond." if found.edge else ""
    if chance > 0.2:
        tail = f" A cluster this tight occurs in {chance:.0%} of searches by chance: not tight enough to drop the rest."
    else:
        tail = f" By chance a cluster this tight occurs in {max(chance, 0.001):.1%} of searches."
    says = (
        f"{found.name}: {number(found.low)} to {number(found.high)}, {found.kept:.0%} of the range tried, carried by "
        f"the best {found.carried} of {found.of} settings.{tail}{edge}"
    )
    return RangeRow(*found, says)


def _cliff(found: Cliff) -> CliffRow:
    crashed = f", {found.crashed} of them crashed" if found.crashed else ""
    way = "above" if found.side == "above" else "below"
    says = (
        f"Cliff: of the {found.of} settings next {way} the best {found.name} ({number(found.value)}), from "
        f"{number(found.next_value)} on, {found.bad} are among the worst third{crashed} (p {found.p:.3f}). A value "
        "further away from that side is safer."
    )
    return CliffRow(*found, says)
