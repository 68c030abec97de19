"""What must hold of every table, and who counts what does not: rules, relations, Great Expectations suites."""
