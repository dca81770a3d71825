"""`distrain-tui`, also as `python -m distrain.tui`."""

import gc
import sys

# The modules imported below are never garbage. Searching them for it would take a tenth of the
# time until the first paint, so `BaseApp.start_garbage_collection` turns it on afterwards.
gc.disable()

from distrain.tui.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
