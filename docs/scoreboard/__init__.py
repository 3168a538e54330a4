"""The page of the scoreboard: instruments against devices of known latency."""
