"""Files of records of one size."""
