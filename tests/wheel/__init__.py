"""Prepare the files of a release: README for the package page, licences of linked crates, SBOM.

``tests/wheel.sh`` calls these modules.
"""
