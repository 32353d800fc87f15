"""A capture on disk: tape, state and batches of one training step, as JSON and safetensors.

tape.json           the tape
start.safetensors   parameters, buffers and constants before the first step
batch-N.safetensors inputs and targets of the N-th batch seen; val-N likewise from evaluation
end.safetensors     parameters and buffers late in the run
plain-N.safetensors inputs of the N-th batch as they were before random numbers were put on them, where that was seen
optimizer.json      kind, settings and the names of the parameters of every optimiser
procedure.json      what is done around the step: clipping, learning rates by step, augmentation
"""

from __future__ import annotations

import os
from typing import Any

from clew.errors import ClewError
from clew.home import private
from clew.reading import opened, text
from clew.records import exact
from clew.tape.model import Tape, from_json, to_json

TAPE = "tape.json"
START = "start.safetensors"
END = "end.safetensors"
OPTIMIZERS = "optimizer.json"
PROCEDURE = "procedure.json"


def library() -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise ClewError("a training step is kept with safetensors: pip install 'clew[torch]'") from error
    return safetensors.torch


def write_json(folder: str, name: str, table: Any) -> None:
    path = os.path.join(folder, name)
    with open(path + ".new", "w", encoding="ascii", opener=private) as file:
        file.write(exact.dumps(table))
    os.replace(path + ".new", path)


def write_tape(folder: str, tape: Tape) -> None:
    write_json(folder, TAPE, to_json(tape))


def write_tensors(folder: str, name: str, tensors: dict[str, Any]) -> None:
    """Copies on the CPU: what the script does to its own later does not matter."""
    held = {key: tensor.detach().to("cpu").contiguous().clone() for key, tensor in tensors.items()}
    path = os.path.join(folder, name)
    library().save_file(held, path + ".new")
    os.replace(path + ".new", path)


def read_tape(folder: str) -> Tape:
    path = os.path.join(folder, TAPE)
    try:
        return from_json(exact.loads(text(path, encoding="ascii")))
    except FileNotFoundError as error:
        raise ClewError(f"there is no tape in {folder}.") from error
    except (OSError, OverflowError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ClewError(f"{path} cannot be read as a tape: {error}.") from error


def read_tensors(folder: str, name: str) -> dict[str, Any]:
    path = os.path.join(folder, name)
    try:
        with opened(path):
            return dict(library().load_file(path))
    except FileNotFoundError:
        return {}
    except Exception as error:  # safetensors has errors of its own, by version
        raise ClewError(f"{path} cannot be read: {error}.") from error


def read_json(folder: str, name: str) -> Any:
    try:
        return exact.loads(text(os.path.join(folder, name), encoding="ascii"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ClewError(f"{os.path.join(folder, name)} cannot be read: {error}.") from error


def numbered(folder: str, stem: str) -> list[str]:
    """`batch-0.safetensors`, `batch-1.safetensors`, … in order."""
    names = [name for name in os.listdir(folder) if name.startswith(stem + "-") and name.endswith(".safetensors")]
    return sorted(names, key=lambda name: int(name[len(stem) + 1 : -len(".safetensors")]))
