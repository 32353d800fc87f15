"""`clew completion`: shell completion for commands, causes, tests, outcomes and cases."""

from argparse import ArgumentParser, Namespace


def arguments(parser: ArgumentParser, _: str = "") -> None:
    parser.add_argument(
        "shell", choices=("bash", "zsh", "fish"), help='put this in its start file: eval "$(clew completion bash)"'
    )
    parser.set_defaults(act=act)


def act(options: Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["clew"], shell=options.shell))
    return 0
