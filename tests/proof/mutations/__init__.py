"""Plants errors of one line each in a copy of the core. One test catches each of them.

The list is ``planted.toml``. docs/lab/mutations.md has more on the strength of the tests.
"""
