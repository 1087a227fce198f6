"""The engines: where submissions and entries rest. `base` has the interface and its guarantees."""
