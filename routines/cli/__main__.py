"""`python -m routines.cli`."""

import sys

from routines.cli.main import main

sys.exit(main())
