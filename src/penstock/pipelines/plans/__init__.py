"""Spark's plans of flows, compared: what a change of a project means for the state that its flows keep."""
