"""Known-bad combinations of model, engine, AITER and GPU, each with a public thread."""
