"""Create, read and check configs."""
