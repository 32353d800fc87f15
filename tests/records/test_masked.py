"""Keys, tokens and passwords are masked wherever clew extracts or prints them; what training needs is not."""

import json
import sys
from pathlib import Path

import pytest

from clew.archive import runs
from clew.cli import main
from clew.records.masked import MASK, masked, masked_text, masked_words

KEY = "a1b2c3d4e5f6a7b8c9d0"
SECRETS = [
    ("password", "hunter2"),
    ("db.password", "1234"),
    ("--hf-token", "short"),
    ("OPENAI_API_KEY", "x"),
    ("hubToken", "x"),
    ("aws_secret_access_key", "x"),
    ("client-secret", "x"),
    ("wandb_key", KEY),
    ("token", KEY),
    ("--key", KEY),
    ("note", "hf_" + "AbCdEfGhIjKlMnOpQrSt"),
    ("url", "https://me:hunter2@host/x"),
    ("header", "Authorization: Bearer abcdefghijkl"),
]
PLAIN = [
    ("max_tokens", 512),
    ("token", "[PAD]"),
    ("pad_token", "<pad>"),
    ("bos_token_id", 1),
    ("key_dim", 64),
    ("num_keys", "8"),
    ("key", "val/loss"),
    ("tokenizer", "gpt2-medium-2024-release"),
    ("monkey", KEY),
    ("lr", 0.1),
    ("password", None),
    ("auth", True),
    ("secretary", "problem"),
    ("path", "runs/2024-01-01/model.pt"),
    ("url", "https://host:8080/x"),
]


@pytest.mark.parametrize(("name", "value"), SECRETS)
def test_secrets_are_masked(name: str, value: str) -> None:
    shown = masked(name, value)
    assert MASK in shown
    assert value not in shown


@pytest.mark.parametrize(("name", "value"), PLAIN)
def test_what_training_needs_is_shown(name: str, value: object) -> None:
    assert masked(name, value) == value
    assert masked_words([f"--{name}", str(value)])[1] == str(value) or value is None or value is True


def test_in_text_and_command_lines() -> None:
    words = [
        "train.py",
        "--password",
        "hunter2",
        "--lr",
        "0.1",
        "--api-key=hunter2",
        "db.password=hunter2",
        "--token",
        "-v",
    ]
    assert "hunter2" not in " ".join(masked_words(words))
    assert masked_words(words)[3:5] == ["--lr", "0.1"]
    assert masked_text('login(token="hf_AbCdEfGhIjKlMnOpQrSt", lr=0.1)') == f'login(token="{MASK}", lr=0.1)'
    assert (
        masked_text('client = Client(password="hunter2", user="me")')
        == f'client = Client(password="{MASK}", user="me")'
    )


@pytest.mark.parametrize("piece", ["a", "a.", "eyJ-", "://a:", "token=", "hf_", 'x="'])
def test_long_text_is_no_burden(piece: str) -> None:
    """Quadratic patterns would take hours here."""
    assert masked_text(piece * 100_000)


def test_no_command_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEW_HOME", str(tmp_path / ".clew"))
    for number in range(2):
        words = [sys.executable, "train.py", "--password", f"hunter2{number}", "--lr", str(number)]
        run = runs.begin(words, ".", "train.py", labels={"api_key": f"hunter2{number}", "seed": number})
        runs.finish(run, 0)
        assert f"hunter2{number}" in Path(run.path("run.json")).read_text()  # rerun needs it
    (tmp_path / "runs.csv").write_text(
        "lr,seed,loss,password\n" + "".join(f"{lr},{seed},{lr + seed},hunter2\n" for lr in (1, 2) for seed in range(4))
    )
    commands = [
        ["runs"],
        ["show", "last", "--json", "show.json"],
        ["runs", "diff", "last", "last~1", "--json", "diff.json"],
        ["runs", "rerun", "last", "--only-prepare"],
        ["sweep", "judge", "runs.csv", "--metric", "loss", "--goal", "min", "--json", "judge.json"],
        ["sweep", "collect", "runs.csv", ".clew", "--into", "runs.parquet"],
        ["sweep", "judge", "runs.parquet", "--metric", "loss", "--goal", "min"],
    ]
    for command in commands:
        main(command)
        said = capsys.readouterr()
        assert "hunter2" not in said.out + said.err, command
    for path in (*tmp_path.glob("*.json"), tmp_path / "runs.parquet"):
        assert b"hunter2" not in path.read_bytes(), path
    shown = json.loads((tmp_path / "show.json").read_text())["run"]
    assert MASK in shown["argv"]
    assert "--lr" in shown["argv"]
