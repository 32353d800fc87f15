"""Reading files that anybody may have written: regular files only, and never more than a stated part."""

import errno
import os
import stat
from collections.abc import Iterator
from typing import BinaryIO

MOST = 64 << 20
LONGEST = 1 << 20
"""Bytes of a line."""


def opened(path: str) -> BinaryIO:
    """A regular file. A pipe or a device is an OSError: reading one may never end."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a name with a zero byte
        raise OSError(errno.EINVAL, str(error), path) from error
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, os.strerror(number) if stat.S_ISDIR(mode) else "it is no regular file", path)
    return os.fdopen(handle, "rb")


def whole(path: str, most: int = MOST) -> bytes:
    with opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most / (1 << 20):.3g} MiB", path)
    return data


def text(path: str, most: int = MOST, encoding: str = "utf-8") -> str:
    return whole(path, most).decode(encoding, "replace")


def lines(file: BinaryIO, longest: int = LONGEST) -> Iterator[bytes | None]:
    """The lines of a file with their ends; None for one that is longer than it may be."""
    while line := file.readline(longest + 1):
        if len(line) <= longest:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(longest + 1)
        yield None


def limit_memory(more: int) -> None:
    """Let this process take so many bytes more than it has; what would take it further fails with a MemoryError."""
    import resource

    with open("/proc/self/statm", "rb") as file:
        held = int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held + more, hard))
