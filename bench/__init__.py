"""What tailscope costs, beside what else would do the same: ``python -m bench``."""
