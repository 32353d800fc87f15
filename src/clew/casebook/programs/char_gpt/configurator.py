"""
Poor man's configurator: train.py executes this file, which overrides its globals.
  python train.py config_recipes.py --batch_size=32
"""

import sys
from ast import literal_eval

for arg in sys.argv[1:]:
    if "=" not in arg:
        print(f"Overriding config with {arg}")
        with open(arg) as f:
            exec(f.read())
    else:
        key, val = arg.removeprefix("--").split("=", 1)
        if key not in globals():
            raise ValueError(f"Unknown config key: {key}")
        try:
            attempt = literal_eval(val)
        except (SyntaxError, ValueError):
            attempt = val
        assert type(attempt) is type(globals()[key])
        globals()[key] = attempt
