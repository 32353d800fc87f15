"""`python -m clew.knowledge`: check the knowledge files and say what is wrong with them."""

import sys

from clew.errors import ClewError
from clew.knowledge.base import FOLDER
from clew.knowledge.schema import compile_folder


def main() -> int:
    try:
        knowledge = compile_folder(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
    except ClewError as error:
        print(error, file=sys.stderr)
        return 2
    counts = [f"{len(part)} {name}" for name, part in knowledge._asdict().items() if isinstance(part, dict)]
    print("The knowledge base is consistent: " + ", ".join(counts) + ".")
    return 0


sys.exit(main())
