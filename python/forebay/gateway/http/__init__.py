"""One HTTP connection: its deadlines and limits, and the requests on it."""
