"""Figures of a watch as Prometheus reads them."""
