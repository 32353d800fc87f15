"""Reading logs: every point of every format, the meaning of names, and files that are no logs at all."""

import contextlib
import io
import math
import os
import random
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_writers import WRITERS, Curves, event, events, pairs, record, trainer_lines

from clew.errors import ClewError
from clew.symptoms import logs_lines, logs_points, logs_tensorboard
from clew.symptoms.logs import Log, read_log
from clew.symptoms.logs_names import counter, meaning
from clew.symptoms.logs_numbers import number

LOGS = Path(__file__).parent.parent / "data" / "logs"

numbers = st.floats() | st.floats(-10, 10) | st.integers(-1000, 1000).map(float)
steps = st.lists(st.integers(1, 100_000), min_size=2, max_size=12, unique=True).map(sorted)


@st.composite
def curves(draw: st.DrawFn, names: tuple[str, ...] = ("loss", "val_loss")) -> Curves:
    """A dense first curve and the others at some of its steps, as logs have them."""
    at = draw(steps)
    made = {names[0]: {step: draw(numbers) for step in at}}
    for name in names[1:]:
        own = draw(st.lists(st.sampled_from(at), min_size=1, unique=True).map(sorted))
        made[name] = {step: draw(numbers) for step in own}
    return made


def read_text(text: str | bytes, name: str = "x.log") -> Log:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        Path(path).write_bytes(text.encode() if isinstance(text, str) else text)
        return read_log(path)


def points(log: Log) -> dict[str, list[tuple[int, str]]]:
    """By name as the log spells it; compared as text, so that NaN equals NaN and -0.0 is not 0.0."""
    pairs_of = zip(log.understood, log.series, strict=True)
    return {
        said.source: [(step, repr(value)) for step, value in zip(line.steps, line.values, strict=True)]
        for said, line in pairs_of
    }


def written(made: Curves) -> dict[str, list[tuple[int, str]]]:
    return {name: [(step, repr(value)) for step, value in sorted(curve.items())] for name, curve in made.items()}


@pytest.mark.parametrize("form", WRITERS)
@given(made=curves())
def test_every_point_comes_back(form: str, made: Curves) -> None:
    got = points(read_text(WRITERS[form](made), form))
    want = written(made)
    assert {name: got.get(name, got.get(name.replace("_", " "))) for name in want} == want


@given(made=curves(("loss", "eval_loss")))
def test_trainer_lines_are_numbered_in_order(made: Curves) -> None:
    order = {step: at for at, step in enumerate(sorted(made["loss"]))}
    log = read_text(trainer_lines(made))
    assert log.format == "HF Trainer lines"
    assert log.axis == "order"
    want = written({name: {order[step]: value for step, value in curve.items()} for name, curve in made.items()})
    assert points(log) == want


@given(made=curves(("Loss/train", "Loss/val")), tensor=st.booleans())
def test_event_files_come_back_to_the_last_bit(made: Curves, tensor: bool) -> None:
    single = {
        name: {step: struct.unpack("<f", struct.pack("<f", value))[0] for step, value in curve.items()}
        for name, curve in made.items()
        if all(not math.isfinite(value) or abs(value) < 3e38 for value in curve.values())
    }
    if single:
        assert points(read_text(events(single, tensor))) == written(single)


@given(
    made=curves(("zeta", "loss", "omega_2")),
    sign=st.sampled_from([":", "=", ": ", " = ", " : "]),
    between=st.sampled_from([", ", " | ", " ", "; ", "\t", "  "]),
    word=st.sampled_from(["step", "Iteration", "global_step", "epoch", "it", "num_updates"]),
)
def test_an_unknown_format_is_inferred(made: Curves, sign: str, between: str, word: str) -> None:
    want = written({name: curve for name, curve in made.items() if len(curve) > 1 or name == "loss"})
    assert points(read_text(pairs(made, sign, between, word))) == want


@given(made=curves(("loss", "accuracy", "val loss")))
def test_names_and_values_with_nothing_but_a_space_between(made: Curves) -> None:
    assert points(read_text(pairs(made, " ", " ", "step"))) == written(made)


FRAGMENTS = [
    *(
        "loss",
        "val",
        "step",
        "epoch",
        "nan",
        "inf",
        "1e-3",
        "1,234.5",
        "98%",
        "3/10",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "|",
    ),
    *("'", '"', ":", "=", " ", "  ", "\t", "\n", "\r", "\b", "\0", ",", ";", "-", "->", "—", "it/s", "12:00:01", "."),
    *("2024-01-01", "\x1b[31m", "tensor(", "acc", "learning rate", "#", "1e999", "0x1f", "é", "٣", "9" * 400, "total"),
    *("| a | 1 |\n", "Epoch 1/3\n", '{"loss": 1}\n', "step,loss\n1,2\n", "iter 3: loss 2\n", "[1,  200] loss: 3\n"),
    *("[0/5][3/9]", "cost after iteration 3: 4\n", "epoch  train_loss\n0  1.5\n", "train_runtime", "\ufeff", "\ud7ff"),
    *('{"log_history": [', '{"step": 1, "loss": "nan"}', "]}", "[[[[", "null", "true", "Infinity", "-Infinity", "-0"),
]


@settings(max_examples=400)
@given(text=st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join) | st.text(max_size=300))
@example("1" * 5000 + ": loss 3\n")
@example('{"a": ' * 3000)
@example("epoch nan loss 3\nepoch inf loss 4\n")
@example("step 1e300 loss 3\nstep -5 loss 4\n")
@example('{"step": 1e400, "loss": 1}\n{"step": NaN, "loss": 2}\n')
@example(f'{{"step": {"9" * 400}, "loss": {"9" * 400}}}\n' * 2)
def test_no_text_is_too_odd(text: str) -> None:
    try:
        log = read_text(text.encode("utf-8", "surrogatepass"))
    except ClewError:
        return
    assert log.series
    for line in log.series:
        assert len(line.steps) == len(line.values)
        assert list(line.steps) == sorted(set(line.steps))
    assert len({line.name for line in log.series}) == len(log.series)


@given(data=st.binary(max_size=400) | st.binary(max_size=60).map(lambda data: record(data) * 2))
def test_no_bytes_are_too_odd(data: bytes) -> None:
    with contextlib.suppress(ClewError):
        read_text(data, "events.out.tfevents.1.host")


SAMPLE = events({"loss": {step: 1 / (step + 1) for step in range(20)}})


@given(cut=st.integers(0, len(SAMPLE)))
def test_a_torn_event_file_gives_what_comes_before(cut: int) -> None:
    whole = points(read_text(SAMPLE))["loss"]
    try:
        log = read_text(SAMPLE[:cut])
    except ClewError:
        assert cut < 200
        return
    got = points(log)["loss"]
    assert got == whole[: len(got)]
    assert bool(log.notes) == ((cut - len(events({}))) % len(event("loss", 1, 1.0)) != 0)


@given(at=st.integers(0, len(SAMPLE) - 1), bit=st.integers(0, 7))
def test_a_damaged_event_file_never_gives_wrong_points(at: int, bit: int) -> None:
    data = bytearray(SAMPLE)
    data[at] ^= 1 << bit
    whole = set(points(read_text(SAMPLE))["loss"])
    try:
        log = read_text(bytes(data))
    except ClewError:
        return
    assert set(points(log)["loss"]) <= whole
    assert log.notes


def test_checksums() -> None:
    """The figures of RFC 3720, appendix B.4."""
    assert logs_tensorboard.crc32c(b"\0" * 32) == 0x8A9136AA
    assert logs_tensorboard.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert logs_tensorboard.crc32c(bytes(range(32))) == 0x46DD794E


def test_a_file_of_the_real_writer() -> None:
    log = read_log(str(LOGS / "events.out.tfevents.1700000000.host.0"))
    assert [(held.source, held.role, held.points) for held in log.understood] == [
        ("Loss/train", "train loss", 100),
        ("Loss/val", "validation loss", 10),
        ("Accuracy/val", "metric", 10),
        ("note", "other", 1),
    ]
    assert log.series[0].values[-1] == math.inf
    assert math.isnan(log.series[3].values[0])


def test_pictures_are_passed_over() -> None:
    data = events({"loss": {1: 0.5}}) + record(b"\x2a" + b"x" * (2 << 20)) + event("loss", 2, 0.25)
    log = read_text(data)
    assert points(log) == {"loss": [(1, "0.5"), (2, "0.25")]}
    assert not log.notes


NUMBERS = [
    ("0.5", 0.5),
    ("1e-3", 0.001),
    ("1.5E-07", 1.5e-7),
    ("1,234.5", 1234.5),
    ("1,048,576", 1048576.0),
    (".5", 0.5),
    ("5.", 5.0),
    ("+3", 3.0),
    ("98.2%", 0.982),
    ("98.2 %", 0.982),
    ("1e2%", 1.0),
    ("inf", math.inf),
    ("-Infinity", -math.inf),
    ("1e999", math.inf),
    ("", None),
    ("1,23", None),
    ("1.2.3", None),
    ("0x1f", None),
    ("12k", None),
    ("1_000", None),
    ("none", None),
]


@pytest.mark.parametrize(("text", "value"), NUMBERS)
def test_numbers(text: str, value: float | None) -> None:
    assert number(text) == value


def test_not_a_number_is_a_number() -> None:
    assert all(math.isnan(number(text) or 0.0) for text in ("nan", "NaN", "-nan"))


NAMES = [
    ("loss", "loss", "train loss", ""),
    ("Train Loss", "train_loss", "train loss", "train"),
    ("Loss/train", "train_loss", "train loss", "train"),
    ("trainLoss", "train_loss", "train loss", "train"),
    ("train_loss_step", "train_loss_step", "train loss", "train"),
    ("total_loss", "total_loss", "train loss", ""),
    ("lm loss", "lm_loss", "train loss", ""),
    ("Average loss", "loss", "train loss", ""),
    ("eval_loss", "val_loss", "validation loss", "val"),
    ("valid/loss", "val_loss", "validation loss", "val"),
    ("Test Loss", "test_loss", "validation loss", "test"),
    ("value_loss", "value_loss", "loss term", ""),
    ("loss scale", "loss_scale", "other", ""),
    ("best_val_loss", "val_best_loss", "other", "val"),
    ("acc", "accuracy", "metric", ""),
    ("val_acc", "val_accuracy", "metric", "val"),
    ("Acc@1", "accuracy_1", "metric", ""),
    ("ppl", "perplexity", "metric", ""),
    ("rollout/ep_rew_mean", "rollout_ep_rew", "metric", ""),
    ("rollout/ep_len_mean", "rollout_ep_len", "episode length", ""),
    ("lr-Adam", "learning_rate", "learning rate", ""),
    ("learning rate", "learning_rate", "learning rate", ""),
    ("gnorm", "grad_norm", "gradient norm", ""),
    ("total norm", "grad_norm", "gradient norm", ""),
    ("grad_norm/encoder", "grad_norm_encoder", "other", ""),
    ("samples_per_second", "samples_per_second", "timing", ""),
    ("zeta", "zeta", "other", ""),
]


@pytest.mark.parametrize(("source", "name", "role", "split"), NAMES)
def test_names(source: str, name: str, role: str, split: str) -> None:
    held = meaning(source)
    assert (held.name, held.role, held.split) == (name, role, split)


def test_which_way_a_metric_should_go() -> None:
    assert meaning("val_f1").goal == "up"
    assert meaning("perplexity").goal == "down"
    assert meaning("wer").goal == "down"


COUNTERS = {
    "step": ("step", "global_step", "trainer/global_step", "num_updates", "_step"),
    "epoch": ("Train Epoch", "epoch"),
    "batch": ("batch_idx",),
    "frames": ("time/total_timesteps",),
    "": ("batch_size", "num_epochs", "steps_per_epoch", "step_time", "max_steps", "zeta"),
}


@pytest.mark.parametrize("kind", COUNTERS)
def test_what_counts_time(kind: str) -> None:
    assert {name: counter(name) for name in COUNTERS[kind]} == dict.fromkeys(COUNTERS[kind], kind)


def test_batches_go_on_where_the_last_epoch_ended() -> None:
    text = ""
    for epoch in (1, 2, 3):
        for batch in (0, 640, 1280):
            text += f"Train Epoch: {epoch} [{batch}/2000 ({batch // 20}%)]\tLoss: {epoch}.{batch}\n"
        text += f"\nTest set: Average loss: 0.{epoch}, Accuracy: {900 + epoch}/1000 (9{epoch}%)\n\n"
    log = read_text(text)
    assert points(log)["train Loss"][3:6] == [(2000, "2.0"), (2640, "2.64"), (3280, "2.128")]
    assert points(log)["test Accuracy"] == [(1280, "0.901"), (3280, "0.902"), (5280, "0.903")]
    assert log.epochs == (0, 2000, 4000)


def test_a_share_with_its_counts_behind_it_is_one_value() -> None:
    text = ""
    for batch in (20, 40, 60):
        text += f"Batch[{batch}] - loss: 0.{batch}  acc: 96.8750%(62/64)\n"
        text += f"Evaluation - loss: 0.2{batch}  acc: 95.0000%(285/300) \n"
    log = read_text(text)
    assert points(log)["acc"] == [(20, "0.96875"), (40, "0.96875"), (60, "0.96875")]
    assert points(log)["val acc"] == [(20, "0.95"), (40, "0.95"), (60, "0.95")]


def test_a_counter_that_starts_over_counts_within_epochs() -> None:
    text = "".join(f"step {step}: loss {run}.{step}\n" for run in range(5) for step in (100, 200, 300))
    held = read_text(text).of("loss")
    assert held is not None
    assert held.steps == tuple(range(100, 1501, 100))


def test_after_a_restart_the_later_points_count() -> None:
    text = "".join(f"step {step}: loss 1.{step}\n" for step in (10, 20, 30, 40))
    text += "".join(f"step {step}: loss 2.{step}\n" for step in (30, 40, 50))
    log = read_text(text)
    assert points(log)["loss"] == [(10, "1.1"), (20, "1.2"), (30, "2.3"), (40, "2.4"), (50, "2.5")]
    assert any("restart" in note for note in log.notes)


def test_batches_of_an_evaluation_are_one_evaluation() -> None:
    text = ""
    for epoch in (0, 1):
        for batch in (1, 11):
            text += (
                f"Epoch: [{epoch}][ {batch}/20]\tTime  7.3 ( 7.3)\tLoss 7.0{batch} (9.9)\tAcc@1   0.0{batch} (  9.9)\n"
            )
        for batch in (1, 11):
            text += (
                f"Test: [ {batch}/196]\tTime  3.0 ( 3.0)\tLoss 6.{batch} (6.{epoch})\tAcc@1  1.{batch} ( 1.{epoch})\n"
            )
        text += f" *   Acc@1 {epoch}.500 Acc@5 4.000\n"
    got = points(read_text(text))
    assert got["Loss"] == [(1, "7.01"), (11, "7.011"), (21, "7.01"), (31, "7.011")]
    assert got["test Loss"] == [(11, "6.0"), (31, "6.1")]
    assert got["test Acc@1"] == [(11, "0.5"), (31, "1.5")]


LINES = [
    ("Cost after iteration {}: {}", "Cost"),
    ("[1,  {}] loss: {}", "loss"),
    ("[{}]\ttrain-rmse:{}", "train-rmse"),
    ("{}:\tlearn: {}\ttotal: 50ms", "learn"),
    ("INFO:root:step {} finished with loss {}", "loss"),
    ("INFO step={} loss={}", "loss"),
    ("2026-01-01 10:00:01,123 - trainer - INFO step={} WARNING loss={}", "loss"),
    ("2024-05-01 12:00:01,123 - INFO - Step [{}/600], Loss: {}", "Loss"),
    ("step {} loss: tensor({}, device='cuda:0', grad_fn=<NllLossBackward0>)", "loss"),
    ("step {} loss: np.float64({})", "loss"),
    (
        " iteration       {}/  500000 | elapsed time per iteration (ms): 5.0 | lm loss: {} | nan iterations:  0 |",
        "lm loss",
    ),
    ("\x1b[1mstep {}\x1b[0m  \x1b[32mloss={}\x1b[0m", "loss"),
    ("step {} | tok/sec: 1,048,576 | loss {}", "loss"),
    ("epoch {}: best (so far): - loss {}", "loss"),
]


@pytest.mark.parametrize(("line", "name"), LINES)
def test_lines_as_people_print_them(line: str, name: str) -> None:
    log = read_text("".join(line.format(step, f"0.{step}") + "\n" for step in (11, 12, 13)))
    assert points(log)[name] == [(11, "0.11"), (12, "0.12"), (13, "0.13")]


def test_the_set_of_data_holds_for_the_rest_of_the_line() -> None:
    log = read_text("".join(f"Epoch {n}: train loss 0.9 acc 0.5 | val loss 0.8 acc 0.6, LR: 0.1\n" for n in (1, 2)))
    assert [held.name for held in log.understood] == [
        "train_loss",
        "train_accuracy",
        "val_loss",
        "val_accuracy",
        "learning_rate",
    ]


def test_a_printed_table() -> None:
    log = read_text(
        "epoch     train_loss  valid_loss  time\n0         1.2         0.8         00:12\n1  0.9  0.7  00:11\n"
    )
    assert points(log) == {"train_loss": [(0, "1.2"), (1, "0.9")], "valid_loss": [(0, "0.8"), (1, "0.7")]}


def test_a_table_with_a_quantity_to_a_row() -> None:
    text = "".join(
        f"{'-' * 30}\n| rollout/  |   |\n|  ep_rew_mean | {n}.5 |\n| time/ |  |\n|  total_timesteps | {n * 2048} |\n"
        f"| train/ |  |\n|   loss | 0.{n} |\n{'-' * 30}\n"
        for n in (1, 2, 3)
    )
    got = points(read_text(text))
    assert got["rollout/ep_rew_mean"] == [(2048, "1.5"), (4096, "2.5"), (6144, "3.5")]
    assert got["train/loss"] == [(2048, "0.1"), (4096, "0.2"), (6144, "0.3")]


def test_settings_and_chatter_are_no_curves() -> None:
    log = read_text("batch_size: 32\nseed = 1337\nsaved 3 files in 12 s\nstep 1 loss 2.0\nstep 2 loss 1.0\n")
    assert [held.source for held in log.understood] == ["loss"]


def test_two_losses_and_no_total_are_terms() -> None:
    log = read_text("".join(f"[0/5][{n}/90]\tLoss_D: 1.{n}\tLoss_G: 6.{n}\n" for n in (0, 50)))
    assert {held.role for held in log.understood} == {"loss term"}


def test_the_mean_that_closes_a_run_is_no_curve() -> None:
    log = read_log(str(LOGS / "hf_healthy.log"))
    roles = {held.source: held.role for held in log.understood}
    assert roles["loss"] == "train loss"
    assert roles["train_loss"] == "other"


def test_steps_of_trainer_lines_agree_with_the_state_file() -> None:
    """Two runs of the same program, one printed and one saved: printing rounds values, not steps."""
    printed, saved = (read_log(str(LOGS / name)) for name in ("hf_healthy.log", "trainer_state.json"))
    for name in ("loss", "val_loss"):
        one, other = printed.of(name), saved.of(name)
        assert one is not None
        assert other is not None
        assert one.steps == other.steps


def test_percentages_are_told_from_shares() -> None:
    log = read_text("".join(f"epoch {n} acc {n * 20} val_acc 0.{n}\n" for n in (1, 2, 3)))
    assert [line.unit for line in log.series] == ["%", ""]


def test_lists_by_name() -> None:
    log = read_text('{"history": {"loss": [2.0, 1.5, NaN], "val_loss": [2.1, 1.6]}, "batch": 3}', "history.json")
    assert points(log) == {
        "history/loss": [(0, "2.0"), (1, "1.5"), (2, "nan")],
        "history/val_loss": [(0, "2.1"), (1, "1.6")],
    }


def test_one_point_to_a_row() -> None:
    text = "".join(
        f'{{"tag": "{tag}", "step": {n}, "value": {n}.5}}\n' for n in (1, 2) for tag in ("a/loss", "val/loss")
    )
    assert points(read_text(text, "x.jsonl")) == {
        "a/loss": [(1, "1.5"), (2, "2.5")],
        "val/loss": [(1, "1.5"), (2, "2.5")],
    }
    exported = "Wall time,Step,Value\n1700000000.5,1,0.5\n1700000001.5,2,0.25\n"
    assert points(read_text(exported, "run-a-tag-loss.csv")) == {"loss": [(1, "0.5"), (2, "0.25")]}


def test_a_table_without_a_header_says_so() -> None:
    log = read_text("0,2.5\n1,2.25\n2,2.0\n", "losses.csv")
    assert [held.role for held in log.understood] == ["other", "other"]
    assert any("no header" in note for note in log.notes)


BAD = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\n\t", "contains no text"),
    "zeros": (b"\0" * 5000, "contains no text"),
    "binary": (random.Random(1).randbytes(5000), "is not text"),
    "zip": (b"PK\3\4" + b"a" * 100, "is not text"),
    "gzip": (b"\x1f\x8b" + b"a" * 100, "is compressed"),
    "prose": (b"It was a dark and stormy night.\nNobody trained anything.\n", "contains no named numbers"),
    "list": (b"[1, 2, 3]", "contains no named numbers"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_log_gets_one_sentence(name: str) -> None:
    data, says = BAD[name]
    with pytest.raises(ClewError, match=says):
        read_text(data)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ClewError, match="No such file"):
        read_log(str(tmp_path / "nothing"))
    with pytest.raises(ClewError, match="is a folder"):
        read_log(str(tmp_path))
    with pytest.raises(ClewError, match="cannot read"):
        read_log("a\0b")
    with pytest.raises(ClewError, match="is a device"):
        read_log("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ClewError, match="is empty"):
        read_log(str(tmp_path / "pipe"))
    with pytest.raises(ClewError, match="first record is damaged"):
        read_text(b"x" * 100, "events.out.tfevents.1")


def test_a_pipe_is_read_to_its_end() -> None:
    read, write = os.pipe()
    os.write(write, b"step 1 loss 2.0\nstep 2 loss 1.0\n")
    os.close(write)
    try:
        assert points(read_log(f"/dev/fd/{read}"))["loss"] == [(1, "2.0"), (2, "1.0")]
    finally:
        os.close(read)


def test_text_in_other_encodings() -> None:
    text = "step 1: loss 2.0, größe 5\nstep 2: loss 1.0, größe 6\n"
    want = [(1, "2.0"), (2, "1.0")]
    assert points(read_text(text.encode("utf-16")))["loss"] == want
    assert points(read_text(b"\xef\xbb\xbf" + text.encode()))["loss"] == want
    latin = read_text(text.encode("latin-1"))
    assert points(latin)["loss"] == want
    assert any("not valid text" in note for note in latin.notes)


def test_line_ends_of_every_kind() -> None:
    lines = [f"step {n} loss {n}.5" for n in range(1, 6)]
    want = points(read_text("\n".join(lines)))
    for end in ("\r\n", "\r", "\n\n", "\b\b\b\r", "\r\n\n"):
        assert points(read_text(end.join(lines))) == want


@given(text=st.text("ab\r\n\b", max_size=40), chunk=st.integers(1, 5))
def test_lines_do_not_depend_on_how_the_file_is_read(text: str, chunk: int) -> None:
    def lines() -> list[tuple[str, bool]]:
        made = logs_lines.Lines(io.BytesIO(text.encode()))
        return [(line, made.redrawn) for line in made if line]

    whole = lines()
    size, logs_lines.CHUNK = logs_lines.CHUNK, chunk
    try:
        assert lines() == whole
    finally:
        logs_lines.CHUNK = size
    assert "".join(line for line, _ in whole) == "".join(letter for letter in text if letter in "ab")


def test_a_line_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_lines, "LONGEST", 20_000)
    monkeypatch.setattr(logs_lines, "CHUNK", 1_000)
    log = read_text("step 1 loss 2.0\n" + "x" * 50_000 + " loss 9.0\nstep 2 loss 1.0\n")
    assert points(log)["loss"] == [(1, "2.0"), (2, "1.0")]
    assert log.notes == ("of 1 long line the first 16 KiB were read.",)


def test_of_a_very_long_file_the_ends_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_lines, "MOST", 4_000)
    log = read_text("".join(f"step {n} loss 1.{n}\n" for n in range(10_000)))
    got = points(log)["loss"]
    assert got[0] == (0, "1.0")
    assert got[-1] == (9999, "1.9999")
    assert len(got) < 300
    assert any("large" in note for note in log.notes)


def test_a_json_value_of_millions_of_records_is_refused_unread() -> None:
    with pytest.raises(ClewError, match="3,000,001 records in one JSON value"):
        read_text("[" + ",".join(['{"a":1}'] * 3_000_000) + "]", "wide.json")


def test_more_records_than_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_points, "MOST_RECORDS", 10)
    monkeypatch.setattr(logs_points, "MOST_NAMES", 3)
    text = "".join(f'{{"step": {n}, "a": {n}, "b": 1, "c": 2, "d": 3}}\n' for n in range(20))
    for log in (read_text(text), read_text(events({"loss": dict.fromkeys(range(20), 1.0)}))):
        assert len(log.series[0].steps) == 10
        assert any("first 10 records" in note for note in log.notes)
    assert len(read_text(text).series) == 3


def test_a_torn_last_line_is_left_out() -> None:
    log = read_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n{"step": 3, "lo' * 1, "x.jsonl")
    assert points(log)["loss"] == [(1, "2.0"), (2, "1.0")]


SAMPLES = {
    "nanogpt_healthy.log": ("nanoGPT lines", "step", {"loss": 201, "train_loss": 9, "val_loss": 9}),
    "hf_healthy.log": ("HF Trainer lines", "step", {"loss": 60, "val_loss": 10, "grad_norm": 60, "learning_rate": 60}),
    "trainer_state.json": ("HF trainer_state.json", "step", {"loss": 60, "val_loss": 10}),
    "lightning_overfit.csv": ("CSV", "step", {"train_loss_step": 200, "train_loss_epoch": 20, "val_accuracy": 20}),
    "keras_overfit.log": ("Keras progress lines", "epoch", {"loss": 30, "val_loss": 30, "val_accuracy": 30}),
    "tqdm_stuck.log": ("tqdm progress bars", "batch", {"loss": 181}),
    "leak.jsonl": ("lines of JSON", "step", {"train_loss": 180, "val_loss": 6, "val_accuracy": 6}),
    "pytorch_example_healthy.log": ("names with values", "batch", {"train_loss": 150, "test_accuracy": 5}),
    "home_made_oscillates.log": ("names with values", "step", {"train_loss": 300, "grad_norm": 300}),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_logs_of_real_programs(name: str) -> None:
    form, axis, counts = SAMPLES[name]
    log = read_log(str(LOGS / name))
    assert (log.format, log.axis) == (form, axis)
    got = {line.name: len(line.steps) for line in log.series}
    assert {name: got.get(name) for name in counts} == counts
