"""Errors of one line each, planted in a copy of the core, and the test that catches each of them.

The list is ``planted.toml``; docs/lab/mutations.md tells what else is known of the tests' strength.
"""
