"""Budgets for evaluations: tokens and dollars, charged for every request to a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from skillbelt.agent import Usage
from skillbelt.errors import ConfigError

_MILLION = 1_000_000


class TokenPrice(NamedTuple):
    """Dollars for a million tokens, in and out."""

    input: float
    output: float

    def cost(self, usage: Usage) -> float:
        """Return the cost of a request."""
        millionths = usage.input_tokens * self.input + usage.output_tokens * self.output
        return millionths / _MILLION


def parse_price(text: str) -> TokenPrice:
    """Parse `IN,OUT`, dollars for a million tokens; ConfigError otherwise."""
    try:
        first, second = (float(part) for part in text.split(","))
    except ValueError:
        first = second = -1.0
    if not (0 <= first < float("inf") and 0 <= second < float("inf")):
        raise ConfigError(f"--price takes IN,OUT: dollars for a million tokens, not {text!r}")
    return TokenPrice(first, second)


# Returns the cost of a request in dollars; None if the price of the model is unknown.
PriceOf = Callable[[Usage], float | None]


class Budget:
    """Counts tokens and dollars against their limits; 0 is no limit."""

    def __init__(self, *, max_tokens: int = 0, max_cost: float = 0.0) -> None:
        self._max_tokens, self._max_cost = max_tokens, max_cost
        self.tokens, self.cost, self.priced = 0, 0.0, True
        self.estimated = False  # whether a server did not count its tokens

    def charge(self, usage: Usage, price: PriceOf) -> None:
        """Add the usage of a request."""
        self.tokens += usage.input_tokens + usage.output_tokens
        cost = price(usage)
        if cost is None:
            self.priced = False
        else:
            self.cost += cost

    @property
    def spent(self) -> bool:
        """Whether no further request may be made."""
        over_tokens = 0 < self._max_tokens <= self.tokens
        return over_tokens or 0 < self._max_cost <= self.cost

    def require_price(self, model: str, price: PriceOf) -> None:
        """Raise ConfigError if a limit on the cost could not be enforced."""
        if self._max_cost and price(Usage(input_tokens=1, output_tokens=1)) is None:
            raise ConfigError(
                f"--max-cost: the price of {model!r} is not known; give it with --price IN,OUT "
                "(dollars for a million tokens), or use --max-tokens"
            )

    def document(self) -> dict[str, object]:
        """Return what was spent; the cost is None if a price was missing."""
        return {
            "tokens": self.tokens,
            "cost_usd": round(self.cost, 6) if self.priced else None,
            "estimated": self.estimated,
            "spent": self.spent,
        }
