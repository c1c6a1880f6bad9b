"""What the suites of tests share."""
