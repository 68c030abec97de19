"""All that predictions of one regime go by: its pairs, the runs without a TEE, and what is fitted to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gold.outcomes import Refusal
from gold.prediction_checks import find_regime_spread
from gold.ring_costs import average_factor, find_chain_factors, fit_cost
from gold.single_gpu_forecast import find_one_gpu_spread, fit_machines

if TYPE_CHECKING:
    from gold.forecast_runs import ForecastPair, ForecastRun
    from gold.prediction_intervals import Spread
    from gold.single_gpu_model import PlateauModel


@dataclass(frozen=True)
class RegimeModel:
    """All that predictions of one regime go by: its pairs, and the runs without a TEE."""

    regime: str
    pairs: tuple[ForecastPair, ...]
    off_runs: tuple[ForecastRun, ...]

    @cached_property
    def _fits(self) -> dict[tuple[str, int], tuple[float | None, Spread | None]]:
        return {}

    @cached_property
    def plateaus(self) -> dict[str, PlateauModel]:
        """The constants of jobs on one GPU, of each machine."""
        return fit_machines(self.pairs, self.off_runs)

    @cached_property
    def _one_gpu_spreads(self) -> dict[str, Spread | None]:
        return {}

    def find_one_gpu_spread(self, run: ForecastRun) -> Spread | None:
        """How far predictions of jobs on one GPU were off on the run's machine."""
        if run.machine not in self._one_gpu_spreads:
            self._one_gpu_spreads[run.machine] = find_one_gpu_spread(self.of_machine(run), self.off_runs)
        return self._one_gpu_spreads[run.machine]

    def of_machine(self, run: ForecastRun) -> list[ForecastPair]:
        """The pairs of the run's own machine."""
        return [pair for pair in self.pairs if pair.candidate.machine == run.machine]

    def find_cost(self, run: ForecastRun, chains: int) -> tuple[float, Spread | None]:
        """Nanoseconds to seal and open a byte on the run's machine, and how far predictions by that were off."""
        key = (run.machine, chains)
        if key not in self._fits:
            pairs = self.of_machine(run)
            one, spread = fit_cost(pairs), find_regime_spread(pairs)
            # Few models were recorded with several chains: errors are taken to be those of one chain.
            factor = 1.0 if chains == 1 else average_factor(find_chain_factors(pairs, chains))
            self._fits[key] = (one.ns_per_byte * factor if one and factor else None), spread
        cost, spread = self._fits[key]
        if cost is None:
            known = sorted({pair.candidate.chains for pair in self.of_machine(run) if pair.traced})
            if not known:
                raise Refusal(f"the lake has no traced pair of {self.regime} on the machine of this run")
            names = ", ".join(map(str, known))
            raise Refusal(f"no pair shows what chains={chains} does on this machine; known are {names}")
        return cost, spread

    def find_pair(self, run_id: str) -> ForecastPair | None:
        """The pair of a run of the regime."""
        return next((pair for pair in self.pairs if pair.candidate.run_id == run_id), None)
