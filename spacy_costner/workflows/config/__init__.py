"""Write, read and check configs."""
