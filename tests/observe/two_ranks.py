"""Starts a script twice, as ranks 0 and 1: what torchrun does, without its own import of torch.

Under torchrun itself a program of the zoo is run.
"""

import os
import socket
import subprocess
import sys


def main() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    world = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv[1:]], env={**world, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(2)
    ]
    return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
