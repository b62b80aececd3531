"""Compares kvoxide's plans with vLLM's for every class of its registry, with five variants
each.

``classes`` finds the configuration of a class, ``variants`` writes five folders for it, and
``forked`` asks vLLM about each of them. ``recorded`` keeps folders and answers in one file, and
``comparing`` plays them through kvoxide.
"""
