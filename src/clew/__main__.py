import sys

from clew.cli import main

sys.exit(main())
