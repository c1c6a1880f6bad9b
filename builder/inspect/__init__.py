"""The contents of images, and whether they match what their records say."""
