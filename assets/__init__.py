"""Which table comes from which, and what each is held to."""
