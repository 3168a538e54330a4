"""Machines of a laboratory, booted as a run needs them."""
