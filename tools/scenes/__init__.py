"""The scenes of the guides: played in a fresh environment, compared with what they promise."""
