"""What is inside an image, and whether that is what is said of it."""
