"""`clew log` on logs of real programs, healthy and not, and on what people mistake for logs."""

import math
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tinyhtml5
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.app import logs
from clew.errors import ClewError
from clew.knowledge import load
from clew.records import exact
from clew.records.clue import Reading, Unclear
from clew.records.trace import Series
from clew.report.log_page import log_page
from clew.report.text import Page
from conftest import Clew

LOGS = Path(__file__).parent.parent / "data" / "logs"


@pytest.fixture
def log(clew: Clew) -> Clew:
    return lambda *words: clew("log", *words)


def outcomes(log: Clew, *words: str) -> tuple[dict[str, str], dict[str, object], int]:
    said = log(*words, "--json", "out.json")
    assert said.status in (0, 1), said.err
    table = exact.loads(Path("out.json").read_text())
    return {clue["test"]: clue["outcome"] for clue in table["clues"]}, table, said.status


HEALTHY = ["nanogpt_healthy.log", "hf_healthy.log", "trainer_state.json", "pytorch_example_healthy.log"]
FAULTY = {
    "nanogpt_nan.log": {"loss_nonfinite": "seen", "loss_diverges": "stable"},
    "nanogpt_no_step.log": {"loss_stuck_from_start": "stuck", "loss_nonfinite": "absent"},
    "nanogpt_wrong_sign.log": {"loss_rises": "steadily", "loss_diverges": "at_once", "train_val_gap": "alike"},
    "tqdm_stuck.log": {"loss_stuck_from_start": "stuck"},
    "keras_overfit.log": {"train_val_gap": "val_much_worse", "loss_stuck_from_start": "falls"},
    "lightning_overfit.csv": {"train_val_gap": "val_much_worse", "loss_nonfinite": "absent"},
    "home_made_oscillates.log": {"loss_oscillates": "wild", "loss_nonfinite": "absent"},
    "leak.jsonl": {"too_good_too_soon": "suspicious", "train_val_gap": "alike"},
    "events.out.tfevents.1700000000.host.0": {"loss_nonfinite": "seen", "train_val_gap": "alike"},
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_logs_raise_no_alarm(log: Clew, name: str) -> None:
    _, table, status = outcomes(log, str(LOGS / name))
    assert table["verdict"] in ("healthy", "undecided")  # curves alone seldom show health
    assert status == 0
    causes = table["causes"]
    assert isinstance(causes, list)
    assert all(cause["credence"] <= 0.2 for cause in causes if not cause["id"].startswith("none."))


@pytest.mark.parametrize("name", FAULTY)
def test_faulty_logs_show_their_symptoms(log: Clew, name: str) -> None:
    seen, table, status = outcomes(log, str(LOGS / name))
    assert {test: seen.get(test) for test in FAULTY[name]} == FAULTY[name]
    assert table["verdict"] in ("suspect", "fault")
    assert status == 1


def curve(kind: str) -> str:
    """Made logs: what the loss does, and what validation does beside it."""
    draw = random.Random(1)
    noise = [draw.gauss(0.0, 0.02) for _ in range(200)]
    if kind == "val_better":
        rows = [2.3 * math.exp(-e / 8) for e in range(1, 31)]
        return "".join(
            f"epoch {e} loss {0.6 + row + noise[e]:.4f} val_loss {0.2 + row - noise[e]:.4f}\n"
            for e, row in enumerate(rows, 1)
        )
    if kind == "overfits":
        return "".join(
            f"epoch {e} loss {2.3 * math.exp(-e / 6):.4f} val_loss {1.2 + 0.03 * e + noise[e]:.4f}\n"
            for e in range(1, 31)
        )
    shapes: dict[str, Callable[[int], float]] = {
        "falls": lambda n: 0.3 + 2.3 * math.exp(-n / 40),
        "spike": lambda n: 0.3 + (2.3 if n < 20 else 2.3 * math.exp(-(n - 20) / 40)) + 6 * (4 < n < 12),
        "stuck": lambda _: 2.303,
        "explodes": lambda n: 2.3 * math.exp(-n / 40) if n < 120 else 2.3 * math.exp((n - 120) / 20),
    }
    return "".join(f"step {5 * n} loss {shapes[kind](n) + noise[n]:.4f}\n" for n in range(200))


@pytest.mark.parametrize("kind", ["falls", "val_better"])
def test_made_logs_that_are_sound(log: Clew, kind: str) -> None:
    Path("a.log").write_text(curve(kind))
    seen, table, status = outcomes(log, "a.log")
    assert (table["verdict"], status) == ("undecided", 0), seen
    assert kind == "falls" or seen["train_val_gap"] == "val_better"


@pytest.mark.parametrize("kind", ["overfits", "spike", "stuck", "explodes"])
def test_made_logs_that_are_not(log: Clew, kind: str) -> None:
    Path("a.log").write_text(curve(kind))
    seen, table, status = outcomes(log, "a.log")
    assert table["verdict"] in ("suspect", "fault"), seen
    assert status == 1


def test_textbook_overfitting_is_called_that(log: Clew) -> None:
    rows = [(2.2 * math.exp(-e / 6) + 0.02, 1.9 * math.exp(-e / 3) + 0.9 + 0.035 * max(0, e - 6)) for e in range(1, 31)]
    text = "".join(f"epoch {e} train_loss {own:.4f} val_loss {held:.4f}\n" for e, (own, held) in enumerate(rows, 1))
    Path("a.log").write_text(text)
    said = log("a.log")
    verdict = " ".join(said.out.split("Seen")[0].split())
    assert re.search(
        r"SUSPECT Overfitting, most likely: the training loss falls to 0\.03.* from 1\.\d+ at epoch \d+ to", verdict
    )
    assert "(none.overfitting)." in verdict
    assert "no fault" not in said.out
    assert "alike" not in verdict, "a log cannot know how validation was measured"
    assert "(none.overfitting)" in said.out.split("Possible causes")[1].splitlines()[2]


def test_a_nan_after_rising_losses_ranks_the_rate_and_explosion_first(log: Clew) -> None:
    losses = [1.72, 1.64, 1.56, 1.48, 1.4, 1.85, 2.3, 3.2, 5.0, 8.6, 15.8, 30.2]
    rows = [f"epoch {e} loss {value}\n" for e, value in enumerate([*losses, *["nan"] * 6], 1)]
    Path("a.log").write_text("".join(rows))
    _, table, _ = outcomes(log, "a.log")
    causes = table["causes"]
    assert isinstance(causes, list)
    faults = [cause["id"] for cause in causes if not cause["id"].startswith("none.")]
    assert set(faults[:2]) == {"hp.lr_too_high", "arch.exploding_gradient"}
    Path("b.log").write_text("".join(f"epoch {e} loss {2.3 * 0.8**e if e < 13 else math.nan}\n" for e in range(1, 18)))
    _, table, _ = outcomes(log, "b.log")
    causes = table["causes"]
    assert isinstance(causes, list)
    assert causes[0]["id"] == "data.nonfinite", "no climb: a value broke it"


def test_a_training_loss_that_ends_as_nan_leaves_no_share_for_health(log: Clew) -> None:
    losses = [2.3, 1.9, 1.6, 1.5, 1.45, 1.5, 1.9, 3.0, 8.1, 20.0, 55.0, 910.0]
    Path("a.log").write_text("".join(f"epoch {e} loss {v}\n" for e, v in enumerate([*losses, "nan", "nan", "nan"], 1)))
    _, table, _ = outcomes(log, "a.log")
    causes = table["causes"]
    assert isinstance(causes, list)
    assert table["verdict"] == "suspect"
    assert [row["credence"] for row in causes if row["id"].startswith("none.")] == [0, 0, 0]
    assert "none.healthy" not in log("a.log").out


def test_a_fitted_training_set_beside_chance_leaves_the_validation_path(log: Clew) -> None:
    rows = [(2.32 * math.exp(-e / 7), 0.1 + 0.003 * (e % 3)) for e in range(30)]
    text = "".join(f"epoch {e} train_loss {own:.4f} val_acc {held:.3f}\n" for e, (own, held) in enumerate(rows, 1))
    Path("a.log").write_text(text)
    for words in ([], ["--classes", "10"]):
        seen, table, _ = outcomes(log, "a.log", *words)
        assert seen["training_fit"] == "near_zero"
        causes, following = table["causes"], table["next"]
        assert isinstance(causes, list)
        assert isinstance(following, list)
        assert causes[0]["id"] == "data.train_val_mismatch"
        share = {row["id"]: row["credence"] for row in causes}
        assert max(share["data.labels_misaligned"], share["loss.broadcast"]) < 0.01
        assert not words or share["none.healthy"] == 0.0
        path = {row["test"]: row["predictions"] for row in following[:2]}
        assert path.keys() == {"train_eval_same_batch", "train_batch_in_validation"}
        assert path["train_batch_in_validation"]["data.train_val_mismatch"] == "worse"


def agent_log(entropy: Callable[[int], float], returns: Callable[[int], float]) -> str:
    draw = random.Random(2)
    rows = ((returns(i) + draw.gauss(0, 1), entropy(i), 50 * math.exp(-i / 25) + 1) for i in range(60))
    return "".join(
        f"iter {i} ep_rew_mean {got:.2f} entropy_loss {bonus:.4f} value_loss {value:.3f} approx_kl 0.0004\n"
        for i, (got, bonus, value) in enumerate(rows)
    )


def test_a_flat_return_beside_a_uniform_policy_is_named(log: Clew) -> None:
    Path("a.log").write_text(agent_log(lambda i: -0.693 + 0.0003 * (i % 4), lambda _: 22.0))
    seen, table, status = outcomes(log, "a.log")
    assert (seen["entropy_trend"], seen["returns_course"], status) == ("flat", "level", 1)
    causes, following = table["causes"], table["next"]
    assert isinstance(causes, list)
    assert isinstance(following, list)
    assert causes[0]["id"] == "rl.entropy_flat"
    assert following[0]["test"] == "loss_reaches_parameters"
    said = log("a.log").out
    assert "entropy_loss  policy entropy" in said
    assert "no metric was recorded" not in " ".join(said.split())


def test_an_agent_that_learns_raises_no_alarm(log: Clew) -> None:
    Path("a.log").write_text(agent_log(lambda i: -0.693 * math.exp(-i / 40), lambda i: 20 + 3 * i))
    seen, table, status = outcomes(log, "a.log")
    assert (seen["entropy_trend"], seen["returns_course"], status) == ("declining", "rises", 0)
    assert table["verdict"] in ("healthy", "undecided")


def test_without_an_agent_an_entropy_loss_is_a_loss(log: Clew) -> None:
    Path("a.log").write_text(
        "".join(f"step {n} entropy_loss {2.3 * math.exp(-n / 50) + 0.2:.4f}\n" for n in range(200))
    )
    assert "entropy_loss  train loss" in log("a.log").out


def test_reports_say_outcomes_in_words(log: Clew) -> None:
    said = " ".join(log(str(LOGS / "nanogpt_nan.log")).out.split())
    assert not re.search(r"even if|loss_nonfinite(:| )seen|takes \d", said)
    brief = log(str(LOGS / "nanogpt_nan.log"), "--brief").out
    assert re.search(r"next: \w+\. ", brief), "no seconds where no run is at hand"
    assert "If hp.lr_too_high" in said or "If num." in said or "If data.nonfinite" in said


def test_json_follows_the_contract(log: Clew) -> None:
    _, table, _ = outcomes(log, str(LOGS / "nanogpt_nan.log"))
    assert table["schema"] == "clew/1"
    assert table["command"] == "log"
    clues, causes, following, run, held = (table[name] for name in ("clues", "causes", "next", "run", "logs"))
    assert isinstance(clues, list)
    assert isinstance(causes, list)
    assert isinstance(following, list)
    assert isinstance(run, dict)
    assert isinstance(held, list)
    assert {clue["source"] for clue in clues} == {"log"}
    known = load()
    assert all(clue["reads"] == [known.tests[clue["test"]].reads] for clue in clues)
    unknown = table["unknown"]
    assert isinstance(unknown, float)
    assert math.isclose(sum(cause["credence"] for cause in causes if cause["kind"] == "hypothesis") + unknown, 1.0)
    assert all(known.tests[step["test"]].by != "log" for step in following), "the log has been looked at"
    assert set(run) >= {"id", "script", "argv", "steps", "seconds", "exit"}
    assert run["steps"] == 400
    assert held[0]["format"] == "nanoGPT lines"
    row = next(row for row in held[0]["understood"] if row["source"] == "val loss")
    assert row == {
        "source": "val loss",
        "name": "val_loss",
        "role": "validation loss",
        "split": "val",
        "goal": "down",
        "points": 9,
    }
    bad = next(clue for clue in clues if clue["test"] == "loss_nonfinite")
    assert bad["measured"]["first_step"] == 230


def test_the_report_says_what_was_understood(log: Clew) -> None:
    said = log(str(LOGS / "lightning_overfit.csv"))
    out = said.out
    parts = [out.index(part) for part in ("taken for", "SUSPECT", "\nSeen\n", "Possible causes", "best value first")]
    assert parts == sorted(parts)
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "train_loss_step train loss 200 0.09135" in rows
    assert "val_acc validation metric (up) 20 0.7469" in rows
    assert any("'train_loss_step' has the most points" in " ".join(rows[at : at + 2]) for at in range(len(rows)))


@pytest.mark.parametrize("name", [*HEALTHY, *FAULTY])
def test_the_report_fits_80_columns(log: Clew, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(LOGS)
    said = log(name)
    assert not [line for line in said.out.splitlines() if len(line) > 80]
    assert "\033" not in said.out


def test_the_page(log: Clew) -> None:
    Path("<b>.log").write_text("".join(f"step {n} loss 2.3 <i>x 1\n" for n in range(200)))
    assert log("<b>.log", "--html", "page.html").status == 1
    page = tinyhtml5.parse(Path("page.html").read_text(), namespace_html_elements=False)
    words = " ".join("".join(page.itertext()).split())
    assert "<b>.log was read as names with values: loss as train loss (200)" in words
    assert "loss_stuck_from_start" in words


def test_the_number_of_classes_gives_chance_its_place(log: Clew) -> None:
    Path("a.log").write_text("".join(f"epoch {n} loss 2.303 val_acc 0.{100 + n % 3}\n" for n in range(1, 20)))
    seen, _, _ = outcomes(log, "a.log", "--classes", "10")
    assert seen["metric_at_chance"] == "at_chance"
    seen, _, _ = outcomes(log, "a.log")
    assert seen["metric_at_chance"] == "unclear"


def test_files_of_one_run_and_of_several(log: Clew) -> None:
    Path("train.csv").write_text("step,loss\n" + "".join(f"{n},{2.3 - n / 200}\n" for n in range(300)))
    Path("val.csv").write_text("step,val_loss\n" + "".join(f"{n},{2.3 - n / 200}\n" for n in range(0, 300, 30)))
    Path("nan.csv").write_text(
        "step,loss\n" + "".join(f"{n},{'nan' if n > 250 else 2.3 - n / 200}\n" for n in range(300))
    )
    seen, table, _ = outcomes(log, "train.csv", "val.csv")
    assert seen["train_val_gap"] == "alike"
    assert "runs" not in log("train.csv", "val.csv").out
    seen, table, _ = outcomes(log, "train.csv", "nan.csv")
    assert seen["loss_nonfinite"] == "seen"
    clues = table["clues"]
    assert isinstance(clues, list)
    assert next(clue for clue in clues if clue["test"] == "loss_nonfinite")["where"] == [
        {"step": 251, "run": "nan.csv"}
    ]
    assert "Read as 2 runs" in log("train.csv", "nan.csv").out


def test_a_folder_is_searched(log: Clew) -> None:
    Path("out/checkpoint-5").mkdir(parents=True)
    short = '{"log_history": [{"loss": 2.0, "step": 1}]}'
    Path("out/checkpoint-5/trainer_state.json").write_text(short)
    Path("out/trainer_state.json").write_text((LOGS / "trainer_state.json").read_text())
    _, table, _ = outcomes(log, "out")
    held = table["logs"]
    assert isinstance(held, list)
    assert [row["path"] for row in held] == ["out/trainer_state.json"]
    Path("out/events.out.tfevents.1").write_bytes((LOGS / "events.out.tfevents.1700000000.host.0").read_bytes())
    _, table, _ = outcomes(log, "out")
    held = table["logs"]
    assert isinstance(held, list)
    assert [row["format"] for row in held] == ["TensorBoard events"]
    Path("nothing").mkdir()
    said = log("nothing")
    assert said.status == 2
    assert "name a log file" in said.err


def test_epochs_are_laid_over_steps() -> None:
    loss = Series("train_loss", tuple(range(0, 1000, 10)), tuple(1 / (n + 1) for n in range(100)))
    held_out = Series("val_loss", (0, 1, 2, 3), (1.0, 0.5, 0.3, 0.2))
    notes: list[str] = []
    spread = logs.spread({"train_loss": loss, "val_loss": held_out}, notes)
    assert spread["val_loss"].steps == (247, 495, 742, 990)
    assert spread["train_loss"] is loss
    assert len(notes) == 1
    sparse = Series("val_loss", (0, 250, 500, 750), (1.0, 0.5, 0.3, 0.2))
    assert logs.spread({"train_loss": loss, "val_loss": sparse}, notes)["val_loss"] is sparse


def test_gradient_norms_of_a_log() -> None:
    def answer(*values: float) -> object:
        return logs.gradient_explodes(Series("grad_norm", tuple(range(len(values))), values))

    assert isinstance(answer(1.0, 2.0), Unclear)
    assert answer(*[2.0] * 30, 10.0) == Reading(largest_over_early_median=5.0)
    assert answer(math.inf, math.inf, *[2.0] * 30) == Reading(largest_over_early_median=1.0), "a loss scaler at work"
    assert answer(*[2.0] * 30, *[math.nan] * 3) == Reading(largest_over_early_median=math.inf)


BAD = [
    ([], "required: FILE"),
    (["nothing.log"], "No such file"),
    (["empty.log"], "is empty"),
    (["binary.log"], "is not text"),
    (["prose.log"], "contains no named numbers"),
    (["good.log", "--domain", "visoin"], "did you mean vision"),
    (["good.log", "--classes", "1"], "two or more"),
    (["good.log", "--json", "no/such/folder.json"], "cannot write"),
    (["good.log"] * 1 + ["good.log/x"], "Not a directory"),
]


@pytest.mark.parametrize(("words", "says"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_gets_one_sentence(log: Clew, words: list[str], says: str) -> None:
    Path("empty.log").write_bytes(b"")
    Path("binary.log").write_bytes(bytes(range(256)) * 10)
    Path("prose.log").write_text("nothing to see here\n")
    Path("good.log").write_text("".join(f"step {n} loss {n}\n" for n in range(5)))
    said = log(*words)
    assert said.status == 2
    assert says in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert said.out == ""


ODD = st.sampled_from(["nan", "inf", "-inf", "1e300", "-1e308", "0", "0.0", "1e-320", "-3", "2.5"])


@settings(max_examples=40, deadline=None)
@given(values=st.lists(ODD | st.floats(0, 5).map(repr), max_size=150), metric=st.sampled_from(["acc", "wer", "x"]))
def test_no_curve_is_too_odd(values: list[str], metric: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("odd") / "x.log"
    path.write_text(
        "".join(f"step {n} loss {value} val loss {value} {metric} {value}\n" for n, value in enumerate(values))
    )
    try:
        done = logs.read([str(path)])
    except ClewError:
        assert not values
        return
    assert str(log_page(done.seen, logs.facts(done), Page(80)))
    exact.pretty(logs.to_json(done))


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from clew import cli;"
        f"cli.main(['log', {str(LOGS / 'leak.jsonl')!r}]); print('MODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split("MODULES ")[1].split())
    assert not modules & {"torch", "numpy", "pandas", "jinja2", "dataclasses", "inspect", "pathlib", "tensorboard"}
