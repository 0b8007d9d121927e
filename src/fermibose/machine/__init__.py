"""The machine: local layers trained on pairs, a readout, and the network they make."""
