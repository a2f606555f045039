"""`python -m gaitway` is the command `gaitway`."""

from __future__ import annotations

import sys

from gaitway.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
