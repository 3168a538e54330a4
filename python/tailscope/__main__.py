"""``python -m tailscope`` is ``tailscope``."""

import sys

from tailscope.cli import main

sys.exit(main())
