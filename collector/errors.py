"""What can go wrong beside the training loop, by what to do next."""


class CollectorError(Exception):
    """Something that the collector refuses or cannot do; the message says what to do."""


class RingBroken(CollectorError):
    """The ring is over for good: the gradients of this step are not to be used, the job has to start again."""


class RecordingRefused(CollectorError):
    """Nothing was landed; the message says why."""
