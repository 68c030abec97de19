"""Who made each partition, from what, and how anyone can check it: signed statements and the log that holds them."""
