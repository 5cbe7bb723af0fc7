"""`python -m holdfast.cli`: the command line without the installed script."""

import sys

from holdfast.cli.start import main

sys.exit(main())
