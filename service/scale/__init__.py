"""More than one machine: the application on Ray Serve."""
