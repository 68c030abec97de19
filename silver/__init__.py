"""Silver decides what the source meant (unit, clock, duplicate, identity, trust): verb **conform**."""
