"""Questions to a tracker's server: one answer or one reason, with patience for a server that is busy."""

import json
import os
import time
from typing import Any
from urllib import error, parse, request

TRIES, PAUSE, TIMEOUT = 4, 0.5, 60.0
BUSY = {429, 500, 502, 503, 504}


class Unanswered(Exception):
    """Why there is no answer, in words; `status` is the server's, 0 when it was not reached."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


def _opener(url: str) -> Any:
    # A proxy for the outside world cannot reach a server on this machine.
    if (parse.urlsplit(url).hostname or "") in ("localhost", "127.0.0.1", "::1"):
        return request.build_opener(request.ProxyHandler({}))
    return request.build_opener()


def ask(url: str, body: object = None, headers: dict[str, str] | None = None) -> bytes:
    """The bytes that a server answers with. A question without a body is a GET."""
    data = None if body is None else json.dumps(body).encode()
    made = request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    for turn in range(TRIES):
        try:
            with _opener(url).open(made, timeout=TIMEOUT) as answer:
                return bytes(answer.read())
        except error.HTTPError as failure:
            why, status = _reason(failure), failure.code
            wait = failure.headers.get("Retry-After", "") if failure.headers else ""
            failure.close()
            if status not in BUSY or turn == TRIES - 1:
                raise Unanswered(why, status) from None
            time.sleep(min(float(wait), 30.0) if wait.isdigit() else PAUSE * 2**turn)
        except (error.URLError, OSError) as failure:
            reason = getattr(failure, "reason", failure)
            gone = isinstance(reason, ConnectionRefusedError) or turn == TRIES - 1
            if gone or not isinstance(reason, OSError):
                number = getattr(reason, "errno", None)
                raise Unanswered(os.strerror(number) if isinstance(number, int) else str(reason)) from None
            time.sleep(PAUSE * 2**turn)
    raise Unanswered("no answer")


def _reason(failure: error.HTTPError) -> str:
    """What the server says of it, where it says so in JSON."""
    try:
        held = json.loads(failure.read(1 << 16))
        said = held.get("message") or held.get("error") if isinstance(held, dict) else ""
    except (ValueError, OSError):
        said = ""
    return f"it answers {failure.code} {said or failure.reason}".strip().rstrip(".")


def ask_json(url: str, body: object = None, headers: dict[str, str] | None = None) -> dict[str, Any]:
    data = ask(url, body, headers)
    try:
        held = json.loads(data)
    except ValueError:
        raise Unanswered("what it answers is no JSON") from None
    if not isinstance(held, dict):
        raise Unanswered("what it answers is no JSON object")
    return held
