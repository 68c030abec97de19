"""Gold answers a question that someone asks, one table a question: verb **measure**."""
