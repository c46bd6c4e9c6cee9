"""Made-up times for simulations: a core classifies 200 documents of 4,096 bytes per second."""

from benchmarks.lib.record import Data

COSTS: Data = {
    "batch_ms": {"256": {"1": 1.0, "16": 16.0}, "4096": {"1": 4.0, "16": 64.0}},
    "spread": [1.0, 1.0],
    "front_end_ms": {"256": 1.0, "65536": 1.0},
    "wake_ms": {"256": 0.5, "65536": 0.5},
    "refusal_ms": 0.1,
    "transport_ms": 0.2,
}
