"""The rate at which a function overloads, from two medians and the load of interrupts.

S. Gallenmüller et al., "5G QoS: Impact of Security Functions on Latency", NOMS 2020, section VI.
"""
