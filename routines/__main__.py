"""`python -m routines`: the same as the command."""

import sys

from routines.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
