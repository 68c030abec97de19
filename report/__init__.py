"""Report shows an answer to a person, as a page or a plot, and computes no answer of its own."""
