"""When, where and with which settings it runs, and the commands that a person types."""
