"""What a run tells its host: observations, spans, metrics, and what is masked before it leaves."""
