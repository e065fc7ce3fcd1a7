"""`python -m skillbelt` is the command line."""

import sys

from skillbelt.cli import main

sys.exit(main())
