"""The review of snapshot changes in a pull request, for people and for CI: `python -m pipelines.review`."""
