"""What a table is, and everything that touches disk, opens an engine or holds a key."""
