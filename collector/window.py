"""Which steps of a training loop are warm-up, which are timed, and which are recorded."""

from __future__ import annotations

from dataclasses import dataclass

PHASES = ("warmup", "bare", "settling", "recorded", "after")
SETTLING_STEPS = 1


@dataclass(frozen=True)
class Window:
    """Which steps are what: warm-up, timed without the profiler, the profiler's own start, recorded.

    Where no step is recorded there is no profiler, and every step after warm-up is timed without it.
    """

    warmup_steps: int = 3
    bare_steps: int = 5
    recorded_steps: int = 8
    # How often bare and recorded steps take turns after the warm-up; each cycle leaves a trace of its own.
    cycles: int = 1

    @property
    def cycle_steps(self) -> int:
        """Steps of one cycle: bare, the profiler's own start, recorded."""
        return self.bare_steps + (SETTLING_STEPS + self.recorded_steps if self.recorded_steps else 0)

    @property
    def total_steps(self) -> int:
        """Steps that a loop must run for a full recording."""
        return self.warmup_steps + self.cycles * self.cycle_steps

    def phase(self, step: int) -> str:
        """What the step with this number is."""
        if not self.recorded_steps:
            return PHASES[step >= self.warmup_steps]
        if step < self.warmup_steps:
            return PHASES[0]
        if step >= self.total_steps:
            return PHASES[-1]
        step = (step - self.warmup_steps) % self.cycle_steps
        ends = (self.bare_steps, self.bare_steps + SETTLING_STEPS, self.cycle_steps)
        return next(phase for phase, end in zip(PHASES[1:], ends, strict=False) if step < end)
