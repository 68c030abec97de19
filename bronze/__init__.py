"""What the source said, repeated exactly: verb **land**."""
