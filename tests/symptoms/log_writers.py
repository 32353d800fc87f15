"""Logs in the formats of others, written from known points so that reading them back can be compared."""

import csv
import io
import json
import struct
from collections.abc import Callable

Curve = dict[int, float]
Curves = dict[str, Curve]


def rows(curves: Curves) -> list[tuple[int, dict[str, float]]]:
    steps = sorted({step for curve in curves.values() for step in curve})
    return [(step, {name: curve[step] for name, curve in curves.items() if step in curve}) for step in steps]


def nanogpt(curves: Curves) -> str:
    lines = ["number of parameters: 10.65M", "tokens per iteration will be: 16,384"]
    for step, values in rows(curves):
        for name, value in values.items():
            if name == "loss":
                lines.append(f"iter {step}: loss {value!r}, time 31.52ms, mfu 3.42%")
            else:
                lines.append(f"step {step}: {name.replace('_', ' ')} {value!r}")
    return "\n".join(lines) + "\n"


def trainer_lines(curves: Curves) -> str:
    """HF prints dictionaries with fractions of epochs and no steps."""
    return "".join(f"{ {**values, 'epoch': (step + 0.5) / 100} }\n" for step, values in rows(curves))


def trainer_state(curves: Curves) -> str:
    history = [{**values, "epoch": step / 100, "step": step} for step, values in rows(curves)]
    return json.dumps({"best_metric": None, "global_step": 10, "log_history": history}, indent=2)


def sparse_csv(curves: Curves, mark: str = ",") -> str:
    """As Lightning writes it: a row for each thing that was logged, most cells empty."""
    made = io.StringIO()
    table = csv.writer(made, delimiter=mark)
    table.writerow(["epoch", "step", *curves])
    for step, values in rows(curves):
        for name, value in values.items():
            table.writerow([0, step, *(repr(value) if name == held else "" for held in curves)])
    return made.getvalue()


def jsonl(curves: Curves) -> str:
    return "".join(json.dumps({"step": step, **values}) + "\n" for step, values in rows(curves))


def keras(curves: Curves) -> str:
    """Values within an epoch are running averages that the final line replaces."""
    text = ""
    for step, values in rows(curves):
        final = " - ".join(f"{name}: {value!r}" for name, value in values.items())
        text += f"Epoch {step}/{10**6}\n"
        text += (
            f" 1/32 [>.............................] - ETA: 3:12 - loss: 99.5\r17/32 [====>....] - ETA: 2s - {final}\r"
        )
        text += f"32/32 [==============================] - 5s 5ms/step - {final}\n"
    return text


def tqdm(curves: Curves) -> str:
    text = ""
    for step, values in rows(curves):
        final = ", ".join(f"{name}={value!r}" for name, value in values.items())
        text += f"\rtraining:  45%|████▌     | {step}/{10**7} [00:10<00:12,  4.30it/s, {final}]"
    return text + "\n"


def pairs(curves: Curves, sign: str, between: str, counter: str) -> str:
    text = "starting up\nseed = 17\n"
    for step, values in rows(curves):
        held = [f"{counter}{sign}{step}", *(f"{name}{sign}{value!r}" for name, value in values.items())]
        text += between.join(held) + "\n"
    return text


WRITERS: dict[str, Callable[[Curves], str]] = {
    "nanogpt.log": nanogpt,
    "trainer_state.json": trainer_state,
    "metrics.csv": sparse_csv,
    "metrics.tsv": lambda curves: sparse_csv(curves, "\t"),
    "european.csv": lambda curves: sparse_csv(curves, ";"),
    "run.jsonl": jsonl,
    "keras.log": keras,
    "tqdm.log": tqdm,
}


def _crc(data: bytes) -> int:
    """Bit by bit, as the definition has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = _crc(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def _message(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def event(tag: str, step: int, value: float, tensor: bool = False) -> bytes:
    """One scalar, plain or as TensorFlow 2 writes it: a tensor without dimensions."""
    number = struct.pack("<f", value)
    held = _message(8, b"\x08\x01" + _message(2, b"") + _message(4, number)) if tensor else b"\x15" + number
    summary = _message(5, _message(1, _message(1, tag.encode()) + held))
    return record(b"\x09" + struct.pack("<d", 1.7e9) + b"\x10" + _varint(step) + summary)


def events(curves: Curves, tensor: bool = False) -> bytes:
    head = record(b"\x09" + struct.pack("<d", 1.7e9) + _message(3, b"brain.Event:2"))
    points = [event(name, step, value, tensor) for step, values in rows(curves) for name, value in values.items()]
    return head + b"".join(points)
