"""`python -m unf.lab.cli`, the same as `unf`."""

import sys

from ._main import main

sys.exit(main())
