"""The theory at work: bounds, virtual models, and what they are estimated from."""
