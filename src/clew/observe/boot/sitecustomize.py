"""Found first on the path of every Python process that clew observes, and gone from it afterwards.

Python imports this before the script. It puts the path back as it was, lets a sitecustomize of the user's own run as if
this one were not here, and then asks clew to watch for the import of torch. Whatever goes wrong in here must not
be noticed by the script: it is written beside the trace instead.
"""

import os
import sys


def _restore_path() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if not path or os.path.abspath(path) != here]
    sys.path_importer_cache.pop(here, None)


def _run_the_users_own() -> None:
    import importlib

    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError:
        if ours is not None:
            sys.modules["sitecustomize"] = ours


def _start() -> None:
    folder = os.environ.get("CLEW_RUN_FOLDER")
    if not folder or not os.path.isdir(folder):
        return
    try:
        try:
            from clew.observe import start
        except ImportError:
            sys.path.append(os.environ["CLEW_SOURCE"])
            from clew.observe import start
        start.begin(folder)
    except Exception as error:  # noqa: BLE001  # the script comes first; what failed is said in the report
        path = os.path.join(folder, f"trouble-{os.getpid()}.txt")
        with open(path, "a", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(f"could not start observing: {type(error).__name__}: {error}\n")


_restore_path()
_run_the_users_own()
_start()
