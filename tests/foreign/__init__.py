"""Pairs of captures that no part of tailscope made, each with what is true of it."""
