"""A data plane for training: a replay file, embeddings on parameter servers, one arena."""
