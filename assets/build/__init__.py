"""Builds the tables of a lake, run by run and pair by pair; knows nothing of Dagster."""
