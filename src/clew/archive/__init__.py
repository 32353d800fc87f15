"""Every run kept: a folder per run that is written as it happens and survives a crash.

`.clew/runs/ID/` holds `run.json` (what was started, in which surroundings), `git.diff`, `output.jsonl`, `code.json`,
one `trace-PID.jsonl` and `answers-PID.json` per process, `metrics.parquet`, `clues.jsonl`, `report.json`, `report.html`
and, last of all, `end.json`. `.clew/objects/` holds the contents of source files under their digests, each once.

A module per noun: `runs` begins, ends, finds and reads runs; `output`, `code` and `metrics` hold what their names say;
`compare`, `again` and `gc` compare two runs, make one ready to run again, and throw old ones away.
"""
