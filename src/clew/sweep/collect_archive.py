"""clew's own archive, as collectors see it."""

from collections.abc import Iterator

from clew.archive import files, metrics, output, runs
from clew.archive.model import OUTPUT, Record, epoch
from clew.errors import ClewError
from clew.sweep.archive import home_of, row_of
from clew.sweep.points import Found, Look, Points
from clew.sweep.roles import bare


def read_runs(path: str, look: Look, remarks: list[str]) -> Iterator[Found]:
    listing = runs.all_runs(home_of(path))
    remarks += listing.remarks
    for record in listing.records:
        updated = max(epoch(record.started), runs.last_change(record.run))
        if look.settled(updated, record.run.id):
            continue
        row = row_of(record, remarks)
        config = {bare(name): value for name, value in row.items() if name.startswith("config.")}
        config |= {"seed": row["seed"]} if "seed" in row else {}
        points = Points()
        try:
            for (name, of), series in metrics.read_metrics(record.run).items():
                for step, value in zip(series.steps, series.values, strict=True):
                    points.add(name if not of else f"{name}/{of}", step, value)
        except ClewError as error:
            remarks.append(str(error))
        group, state = str(row["group"]), str(row["state"])
        printed = _printed(record, remarks)
        yield Found(record.run.id, path, group, state, record.started, updated, config, points, output=printed)


def _printed(record: Record, remarks: list[str]) -> bytes:
    damage = files.Damage()
    text = "".join(said.text for said in output.read(record.run, damage))
    remarks += [f"run {record.run.id}: {one}." for one in damage.remarks(OUTPUT)]
    return text.encode("utf-8", "replace")
