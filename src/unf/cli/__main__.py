"""`python -m unf.cli`, the same as `unf`."""

import sys

from ._main import main

sys.exit(main())
