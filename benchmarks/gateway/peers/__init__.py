"""Other HTTP servers, each in the environment `http`."""
