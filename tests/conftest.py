"""What every test can use."""

pytest_plugins = ["conftest_realparts"]
