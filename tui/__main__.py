"""`distrain-tui`, also as `python -m tui`."""

import gc
import sys

# What is imported stays: to look through it for garbage only takes time, a tenth of that until
# the first picture. `DistrainApp.settle` ends this.
gc.disable()

from tui.app import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
