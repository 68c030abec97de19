"""The commands that a person types: `teetotal run`, `show`, `query`, `report` and the others."""
