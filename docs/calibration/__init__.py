"""How far models can be trusted: what each promises, and what comes of it."""
