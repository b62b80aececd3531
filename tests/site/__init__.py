"""Builds the site of docs: what mkdocs.yml asks for beyond its plugins.

``tests/run.sh docs`` builds the site. mkdocs loads :mod:`.links` and
:mod:`.checks`, griffe loads :mod:`.docstrings`.
"""
