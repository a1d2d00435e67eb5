"""Markers of the layout tests: `make test` runs "representative or not matrix", `make test-layouts` everything."""


def pytest_configure(config):
    config.addinivalue_line("markers", "matrix: one layout of the equality matrix")
    config.addinivalue_line("markers", "representative: part of the third that make test runs")
