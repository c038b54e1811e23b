"""`python -m unf.lab.cli`, the same as `unf`."""

import sys

from . import main

sys.exit(main())
