"""One measurement: put up, followed, analysed, kept."""
