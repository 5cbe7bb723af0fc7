"""`python -m holdfast`: the command line without the installed script."""

import sys

from holdfast.cli.start import main

sys.exit(main())
